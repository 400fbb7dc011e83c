/* Validates each frame in the driver before the kernel sees it: receive validation in firmware in the thesis (4, 6.1.3), and
 * the match CAM in the paper on speculative defragmentation (section 7).
 *
 * `.ci/xdp` builds validate.o. src/ethernet/xdp fills the maps: the keys of connections, the grants of each, and the ports of
 * listeners. src/ethernet/xdp/layout.rs has the same layouts.
 *
 * Passes all frames of other protocols, and frames that their header does not decide: the connection checks every frame again.
 */
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define swap16(x) __builtin_bswap16(x)
#define swap32(x) __builtin_bswap32(x)

struct map {
	u32 type, key_size, value_size, max_entries, flags;
};
enum { HASH = 1, ARRAY = 2, PERCPU_ARRAY = 6, XSKMAP = 17 };
enum { NO_PREALLOC = 1, MMAPABLE = 1024 };
enum { XDP_DROP = 1, XDP_PASS = 2 };

struct context {
	u32 data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex;
};

static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static long (*const redirect_map)(void *map, u64 key, u64 flags) = (void *)51;
static long (*const check_mtu)(void *context, u32 interface, u32 *mtu, int difference, u64 flags) = (void *)163;
static u64 (*const buffer_len)(void *context) = (void *)188;

/* A connection, by its key. */
struct connection {
	u8 peer[6], local[6];
	/* Bytes of the seal after each datagram. */
	u32 seal;
	/* Indices of its grants and of its sockets; NONE if there is none. */
	u32 area, data, control;
};
#define NONE 0xffffffffu

#define GRANTS 256
struct grant {
	u32 granted, d_id, b_num, mx;
	u64 address;
	u32 length, unused;
};
/* The grants of a connection. The process writes them while this program reads. */
struct area {
	/* Whether Data is checked against the grants. */
	u32 judged;
	/* Whether the connection awaits answers that no grant covers. */
	u32 answers;
	u32 buffer_log2;
	/* The port that the peer addresses; 0: not known yet. */
	u32 port;
	u32 unused[4];
	struct grant grants[GRANTS];
};

/* Whether frames for no connection or listener are dropped. */
struct settings {
	u32 exclusive;
};

enum reason {
	PASSED_DATA, PASSED_CONTROL, PASSED_REQUEST, PASSED_UNKNOWN,
	UNKNOWN_KEY, UNKNOWN_PORT, TRUNCATED, TOO_LONG, MALFORMED, TAGGED, FOREIGN, UNGRANTED, OUT_OF_BOUNDS,
	REASONS
};

SEC("maps") struct map connections = { HASH, sizeof(u32), sizeof(struct connection), 1024, NO_PREALLOC };
SEC("maps") struct map listeners = { HASH, sizeof(u16), sizeof(u32), 1024, NO_PREALLOC };
SEC("maps") struct map areas = { ARRAY, sizeof(u32), sizeof(struct area), 1, MMAPABLE };
SEC("maps") struct map sockets = { XSKMAP, sizeof(u32), sizeof(u32), 1, 0 };
SEC("maps") struct map settings = { ARRAY, sizeof(u32), sizeof(struct settings), 1, 0 };
SEC("maps") struct map counters = { PERCPU_ARRAY, sizeof(u32), sizeof(u64), REASONS, 0 };

/* The ten words of the header, in wire order. */
struct header {
	u8 code, flags;
	u16 param, d_port, s_port;
	u32 d_key;
	u16 checksum, b_id;
	u32 bufx, offset, sync, b_num, d_id, s_id;
};
enum { HEADER = 40, KEY_END = 12, AROUND = 14, TAG = 4, MIN_FRAME = 46, PADDED_FRAME = 48 };
enum { REQUEST_CONNECTION = 1, DATA = 15, LAST_OP = 20, DISCOVERY = 29, PADDED = 30, HANDSHAKE = 31 };
enum { EAGER = 0x40, FRAMES = 0x80, MEMORY = 0x10 };
#define HANDLE 0x80000000u

struct ethernet {
	u8 to[6], from[6];
	u16 type;
} __attribute__((packed));
#define TYPE swap16(0x8181)

INLINE void count(u32 reason)
{
	u64 *counter = map_lookup(&counters, &reason);
	if (counter)
		*counter += 1;
}

INLINE int drop(u32 reason)
{
	count(reason);
	return XDP_DROP;
}

INLINE int pass(u32 reason)
{
	count(reason);
	return XDP_PASS;
}

/* Decides about a frame for no connection or listener. */
INLINE int unknown(u32 reason)
{
	u32 zero = 0;
	struct settings *it = map_lookup(&settings, &zero);
	return it && it->exclusive ? drop(reason) : pass(PASSED_UNKNOWN);
}

INLINE int is_same(const u8 *a, const u8 *b)
{
	return !((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]) | (a[4] ^ b[4]) | (a[5] ^ b[5]));
}

/* Checks Data of `len` bytes against the grants: PASSED_DATA, or the reason to drop it. */
INLINE u32 judge(const struct header *header, u32 flags, u32 len, const struct area *area)
{
	u32 d_id = swap32(header->d_id), mx = swap16(header->b_id);
	/* Unannounced Data and Data for exported memory have no grant here. */
	if (!area->judged || flags & (EAGER | FRAMES) || d_id & HANDLE)
		return PASSED_DATA;
	const struct grant *it = &area->grants[mx % GRANTS];
	if (!it->granted || it->mx != mx || it->d_id != d_id || it->b_num != swap32(header->b_num)) {
		int answers = flags & MEMORY || !(header->bufx | header->offset);
		return area->answers && answers ? PASSED_DATA : UNGRANTED;
	}
	u32 log2 = area->buffer_log2 & 63, offset = swap32(header->offset);
	u64 address = ((u64)swap32(header->bufx) << log2) + offset;
	if (!len || (u64)offset + len > 1ull << log2 || address < it->address || address + len > it->address + it->length)
		return OUT_OF_BOUNDS;
	return PASSED_DATA;
}

SEC("xdp.frags") int validate(struct context *context)
{
	u8 *start = (u8 *)(u64)context->data, *end = (u8 *)(u64)context->data_end;
	struct ethernet *frame = (void *)start;
	if (start + AROUND > end)
		return XDP_PASS;
	u16 type = frame->type;
	u32 tag = 0;
	u8 *payload = start + AROUND;
	u64 len = buffer_len(context) - AROUND;
	int tagged = type == swap16(0x8100) || type == swap16(0x88a8);
	if (tagged) {
		if (payload + TAG > end)
			return XDP_PASS;
		tag = (payload[0] & 0x0f) << 8 | payload[1];
		type = payload[2] | payload[3] << 8;
		payload += TAG;
		len -= TAG;
	}
	if (type != TYPE)
		return XDP_PASS;

	struct header *header = (void *)payload;
	if (payload + KEY_END > end)
		return tag ? XDP_PASS : unknown(TRUNCATED);
	u32 code = header->code >> 3, first = header->code;
	u32 key = header->d_key;
	struct connection *it = map_lookup(&connections, &key);
	if (!it) {
		/* A VLAN is another segment with its own listeners and connections. */
		if (tag)
			return XDP_PASS;
		/* A discovery request has no key. */
		if (code == DISCOVERY)
			return pass(PASSED_REQUEST);
		u16 port = header->d_port;
		if (code != REQUEST_CONNECTION && code != HANDSHAKE)
			return unknown(UNKNOWN_KEY);
		return map_lookup(&listeners, &port) ? pass(PASSED_REQUEST) : unknown(UNKNOWN_PORT);
	}
	if (tag)
		return drop(TAGGED);
	if (!is_same(frame->from, it->peer) || !is_same(frame->to, it->local))
		return drop(FOREIGN);
	if (payload + HEADER > end)
		return drop(TRUNCATED);
	u32 longest = len;
	if (check_mtu(context, 0, &longest, 0, 0))
		return drop(TOO_LONG);

	if (code == PADDED) {
		if (len != PADDED_FRAME || payload + PADDED_FRAME > end)
			return drop(MALFORMED);
		first = payload[PADDED_FRAME - 2];
		code = first >> 3;
		len = payload[PADDED_FRAME - 1];
		if (len < HEADER || len >= MIN_FRAME)
			return drop(MALFORMED);
	}
	u32 reason = PASSED_CONTROL, socket = it->control;
	if (code != HANDSHAKE) {
		if (!code || code > LAST_OP)
			return drop(MALFORMED);
		if (len < HEADER + it->seal && code != REQUEST_CONNECTION)
			return drop(TRUNCATED);
	}
	u32 number = it->area;
	struct area *area = map_lookup(&areas, &number);
	if (area && area->port && code != HANDSHAKE && code != REQUEST_CONNECTION && swap16(header->d_port) != area->port)
		return drop(MALFORMED);
	if (code == DATA) {
		reason = PASSED_DATA;
		if (area)
			reason = judge(header, (first & 7) << 8 | header->flags, len - HEADER - it->seal, area);
		if (reason != PASSED_DATA)
			return drop(reason);
		socket = it->data;
	}
	count(reason);
	/* Without a socket for this queue, the packet sockets get the frame. */
	return tagged ? XDP_PASS : redirect_map(&sockets, socket, XDP_PASS);
}
