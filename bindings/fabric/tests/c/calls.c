/* Calls each function of the provider by Debian's libfabric: the first argument names the case. */
#include "pair.h"

static const struct how plain = {.format = FI_CQ_FORMAT_TAGGED};

static int hinted(struct fi_info *hints) {
    struct fi_info *info = NULL;
    int result = fi_getinfo(VERSION, NULL, NULL, 0, hints, &info);
    if (result == 0)
        fi_freeinfo(info);
    fi_freeinfo(hints);
    return result;
}

static void info(void) {
    struct fi_info *hints = hints_for(FI_MSG), *found;
    EXPECT(0, fi_getinfo(VERSION, "127.0.0.1", "4711", 0, hints, &found));
    EXPECT(FI_SOCKADDR_IN, found->addr_format);
    THAT(found->dest_addr && found->src_addr);
    EXPECT(0, strcmp(found->domain_attr->name, "lo"));
    EXPECT(0, strcmp(found->fabric_attr->prov_name, "zerolane"));
    EXPECT(8, found->domain_attr->mr_key_size);
    EXPECT(4, found->domain_attr->cq_data_size);
    THAT(found->caps & FI_SEND && found->caps & FI_RECV && !(found->caps & FI_RMA));
    THAT((found->domain_attr->mr_mode & FI_MR_VIRT_ADDR) == 0);
    fi_freeinfo(found);
    fi_freeinfo(hints);
    EXPECT(0, hinted(hints_for(FI_MSG | FI_RMA | FI_ATOMIC)));
    EXPECT(-FI_ENODATA, hinted(hints_for(FI_MSG | FI_TAGGED)));
    EXPECT(-FI_ENODATA, hinted(hints_for(FI_MSG | FI_MULTI_RECV)));
#define REFUSES(change)                                                                        \
    do {                                                                                       \
        struct fi_info *it = hints_for(FI_MSG | FI_RMA);                                       \
        change;                                                                                \
        EXPECT(-FI_ENODATA, hinted(it));                                                       \
    } while (0)
    REFUSES(it->ep_attr->type = FI_EP_DGRAM);
    REFUSES(it->ep_attr->protocol = FI_PROTO_SOCK_TCP);
    REFUSES(it->ep_attr->msg_prefix_size = 8);
    REFUSES(it->ep_attr->max_msg_size = SIZE_MAX);
    REFUSES(it->ep_attr->max_order_waw_size = 1);
    REFUSES(it->ep_attr->tx_ctx_cnt = 2);
    REFUSES(it->ep_attr->rx_ctx_cnt = 2);
    REFUSES(it->ep_attr->auth_key_size = 8);
    REFUSES(it->tx_attr->inject_size = 1 << 20);
    REFUSES(it->tx_attr->size = 1 << 20);
    REFUSES(it->tx_attr->iov_limit = 9);
    REFUSES(it->tx_attr->rma_iov_limit = 2);
    REFUSES(it->tx_attr->op_flags = FI_COMMIT_COMPLETE);
    REFUSES(it->tx_attr->msg_order = FI_ORDER_WAW);
    REFUSES(it->rx_attr->op_flags = FI_MULTI_RECV);
    REFUSES(it->rx_attr->msg_order = FI_ORDER_RAW);
    REFUSES(it->rx_attr->size = 1 << 20);
    REFUSES(it->rx_attr->iov_limit = 9);
    REFUSES(it->domain_attr->mr_mode = FI_MR_BASIC);
    REFUSES(it->domain_attr->mr_mode = 0);
    REFUSES(it->domain_attr->mr_key_size = 9);
    REFUSES(it->domain_attr->cq_data_size = 8);
    REFUSES(it->domain_attr->name = strdup("no such interface"));
    REFUSES(it->fabric_attr->name = strdup("another"));
    REFUSES(it->addr_format = FI_SOCKADDR_IB);
    struct fi_info *local = hints_for(FI_MSG);
    EXPECT(-FI_ENODATA, fi_getinfo(VERSION, "192.0.2.77", "1", FI_SOURCE, local, &found));
    EXPECT(-FI_ENODATA, fi_getinfo(VERSION, "no address", "1", FI_NUMERICHOST, local, &found));
    EXPECT(-FI_ENODATA, fi_getinfo(VERSION, "127.0.0.1", "no port", 0, local, &found));
    /* The environment says how a job is protected. */
    setenv("FI_ZEROLANE_SECURITY", "sealed", 1);
    unsetenv("FI_ZEROLANE_KEY");
    EXPECT(-FI_ENODATA, fi_getinfo(VERSION, NULL, NULL, 0, local, &found));
    setenv("FI_ZEROLANE_KEY", "123", 1);
    EXPECT(-FI_ENODATA, fi_getinfo(VERSION, NULL, NULL, 0, local, &found));
    setenv("FI_ZEROLANE_SECURITY", "perhaps", 1);
    EXPECT(-FI_ENODATA, fi_getinfo(VERSION, NULL, NULL, 0, local, &found));
    setenv("FI_ZEROLANE_SECURITY", "plain", 1);
    setenv("FI_ZEROLANE_CONNECT_TIMEOUT", "0", 1);
    EXPECT(-FI_ENODATA, fi_getinfo(VERSION, NULL, NULL, 0, local, &found));
    unsetenv("FI_ZEROLANE_CONNECT_TIMEOUT");
    setenv("FI_ZEROLANE_LANE", "pigeon", 1);
    EXPECT(-FI_ENODATA, fi_getinfo(VERSION, NULL, NULL, 0, local, &found));
    unsetenv("FI_ZEROLANE_LANE");
    EXPECT(0, fi_getinfo(VERSION, NULL, NULL, 0, local, &found));
    fi_freeinfo(found);
    setenv("FI_ZEROLANE_IFACE", "lo", 1);
    EXPECT(0, fi_getinfo(VERSION, NULL, NULL, 0, local, &found));
    EXPECT(0, strcmp(found->domain_attr->name, "lo"));
    fi_freeinfo(found);
    setenv("FI_ZEROLANE_IFACE", "none", 1);
    EXPECT(-FI_ENODATA, fi_getinfo(VERSION, NULL, NULL, 0, local, &found));
    fi_freeinfo(local);
}

static void connections(void) {
    struct pair pair;
    listen_on(&pair);
    size_t room = 0, length = sizeof room;
    EXPECT(0, fi_getopt(&pair.pep->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &room, &length));
    THAT(room >= 24);
    length = 1;
    EXPECT(-FI_ETOOSMALL,
           fi_getopt(&pair.pep->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &room, &length));
    EXPECT(-FI_ENOPROTOOPT,
           fi_getopt(&pair.pep->fid, FI_OPT_ENDPOINT, FI_OPT_TX_SIZE, &room, &length));
    EXPECT(-FI_EOPBADSTATE, fi_listen(pair.pep));
    EXPECT(-FI_EOPBADSTATE, fi_setname(&pair.pep->fid, &pair.address, sizeof pair.address));
    EXPECT(-FI_EINVAL, fi_pep_bind(pair.pep, &pair.eq->fid, 0));
    int backlog = 5;
    EXPECT(0, fi_control(&pair.pep->fid, FI_BACKLOG, &backlog));
    EXPECT(-FI_EBUSY, fi_close(&pair.fabric->fid));
    EXPECT(-FI_EBUSY, fi_close(&pair.eq->fid));
    connect_both(&pair, &plain);
    EXPECT(-FI_EISCONN, fi_connect(pair.client.ep, &pair.address, NULL, 0));
    EXPECT(-FI_EOPBADSTATE, fi_accept(pair.server.ep, NULL, 0));
    EXPECT(-FI_EBUSY, fi_close(&pair.client.tx->fid));
    EXPECT(-FI_EBUSY, fi_close(&pair.domain->fid));
    struct sockaddr_storage peer;
    length = sizeof peer;
    EXPECT(0, fi_getpeer(pair.client.ep, &peer, &length));
    THAT(memcmp(&peer, &pair.address, length) == 0);
    length = 3;
    EXPECT(-FI_ETOOSMALL, fi_getpeer(pair.client.ep, &peer, &length));
    EXPECT(sizeof(struct sockaddr_in), length);
    length = sizeof peer;
    EXPECT(0, fi_getpeer(pair.server.ep, &peer, &length));
    EXPECT(0, fi_getname(&pair.client.ep->fid, &peer, &length));
    /* The end of one is an event of the other. */
    char buffer[8];
    EXPECT(0, fi_recv(pair.server.ep, buffer, sizeof buffer, NULL, 0, buffer));
    EXPECT(0, fi_shutdown(pair.client.ep, 0));
    struct fi_eq_cm_entry entry;
    for (;;) {
        event(&pair, FI_SHUTDOWN, &entry, sizeof entry);
        if (entry.fid == &pair.server.ep->fid)
            break;
    }
    struct fi_cq_err_entry failure = failed(pair.server.rx);
    EXPECT(FI_ECANCELED, failure.err);
    THAT(failure.op_context == buffer && failure.flags & FI_RECV);
    EXPECT(-FI_ENOTCONN, fi_send(pair.server.ep, buffer, 1, NULL, 0, NULL));
    EXPECT(-FI_ENOTCONN, fi_inject(pair.server.ep, buffer, 1, 0));
    EXPECT(-FI_ENOTCONN, fi_recv(pair.server.ep, buffer, 1, NULL, 0, NULL));
    EXPECT(-FI_ENOTCONN, fi_shutdown(pair.server.ep, 0));
    length = sizeof peer;
    EXPECT(-FI_ENOTCONN, fi_getpeer(pair.server.ep, &peer, &length));
    close_pair(&pair);
}

/* A connection that is not made, and why. */
static struct fi_eq_err_entry unconnected(struct pair *pair) {
    uint32_t kind;
    struct fi_eq_cm_entry entry;
    EXPECT(-FI_EAVAIL, fi_eq_sread(pair->eq, &kind, &entry, sizeof entry, 20000, 0));
    struct fi_eq_err_entry failure = {0};
    EXPECT(sizeof failure, fi_eq_readerr(pair->eq, &failure, 0));
    THAT(failure.fid == &pair->client.ep->fid);
    THAT(strlen(fi_eq_strerror(pair->eq, failure.prov_errno, failure.err_data, NULL, 0)) > 5);
    EXPECT(-FI_EAGAIN, fi_eq_readerr(pair->eq, &failure, 0));
    return failure;
}

static void rejections(void) {
    struct pair pair;
    listen_on(&pair);
    struct {
        struct fi_eq_cm_entry entry;
        char data[64];
    } asked;
    char long_data[200] = {0};
    pair.client = endpoint(&pair, pair.info, &plain);
    EXPECT(-FI_EINVAL, fi_connect(pair.client.ep, &pair.address, long_data, sizeof long_data));
    EXPECT(-FI_EINVAL, fi_connect(pair.client.ep, &pair.address, NULL, 4));
    EXPECT(-FI_ENOTCONN, fi_send(pair.client.ep, long_data, 1, NULL, 0, NULL));
    EXPECT(0, fi_connect(pair.client.ep, &pair.address, NULL, 0));
    EXPECT(sizeof asked.entry, event(&pair, FI_CONNREQ, &asked, sizeof asked));
    EXPECT(0, fi_reject(pair.pep, asked.entry.info->handle, NULL, 0));
    EXPECT(-FI_EINVAL, fi_reject(pair.pep, asked.entry.info->handle, NULL, 0));
    fi_freeinfo(asked.entry.info);
    struct fi_eq_err_entry failure = unconnected(&pair);
    EXPECT(FI_ECONNREFUSED, failure.err);
    EXPECT(0, failure.err_data_size);
    EXPECT(-FI_EOPBADSTATE, fi_connect(pair.client.ep, &pair.address, NULL, 0));
    close_end(&pair.client);
    /* With a reason of the program's. */
    pair.client = endpoint(&pair, pair.info, &plain);
    EXPECT(0, fi_connect(pair.client.ep, &pair.address, NULL, 0));
    event(&pair, FI_CONNREQ, &asked, sizeof asked);
    EXPECT(-FI_EINVAL, fi_reject(pair.pep, asked.entry.info->handle, long_data, 200));
    EXPECT(0, fi_reject(pair.pep, asked.entry.info->handle, "no.", 4));
    fi_freeinfo(asked.entry.info);
    failure = unconnected(&pair);
    EXPECT(FI_ECONNREFUSED, failure.err);
    EXPECT(4, failure.err_data_size);
    THAT(memcmp(failure.err_data, "no.", 4) == 0);
    close_end(&pair.client);
    /* An endpoint that is closed while it connects; its request stays, and goes to nobody. */
    pair.client = endpoint(&pair, pair.info, &plain);
    EXPECT(0, fi_connect(pair.client.ep, &pair.address, NULL, 0));
    event(&pair, FI_CONNREQ, &asked, sizeof asked);
    close_end(&pair.client);
    EXPECT(0, fi_reject(pair.pep, asked.entry.info->handle, NULL, 0));
    fi_freeinfo(asked.entry.info);
    pair.client.ep = NULL;
    close_pair(&pair);
}

static void misuse(void) {
    struct pair pair;
    listen_on(&pair);
    struct fid_ep *ep;
    EXPECT(0, fi_endpoint(pair.domain, pair.info, &ep, NULL));
    char buffer[8];
    EXPECT(-FI_ENOEQ, fi_enable(ep));
    EXPECT(-FI_ENOTCONN, fi_send(ep, buffer, 1, NULL, 0, NULL));
    EXPECT(-FI_ENOCQ, fi_recv(ep, buffer, 1, NULL, 0, NULL));
    EXPECT(-FI_EOPBADSTATE, fi_connect(ep, &pair.address, NULL, 0));
    EXPECT(0, fi_ep_bind(ep, &pair.eq->fid, 0));
    EXPECT(-FI_EINVAL, fi_ep_bind(ep, &pair.eq->fid, 0));
    EXPECT(-FI_ENOCQ, fi_enable(ep));
    struct fid_cq *cq = queue(&pair, &plain);
    EXPECT(-FI_EINVAL, fi_ep_bind(ep, &cq->fid, 0));
    EXPECT(-FI_EBADFLAGS, fi_ep_bind(ep, &cq->fid, FI_READ));
    EXPECT(0, fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
    EXPECT(-FI_EINVAL, fi_ep_bind(ep, &cq->fid, FI_RECV));
    EXPECT(-FI_EINVAL, fi_ep_bind(ep, &pair.domain->fid, 0));
    struct fid_cntr *cntr;
    struct fi_cntr_attr counting = {.wait_obj = FI_WAIT_NONE};
    EXPECT(0, fi_cntr_open(pair.domain, &counting, &cntr, NULL));
    EXPECT(-FI_ENOSYS, fi_ep_bind(ep, &cntr->fid, FI_REMOTE_WRITE));
    EXPECT(-FI_EINVAL, fi_ep_bind(ep, &cntr->fid, 0));
    EXPECT(-FI_ENOSYS, fi_cntr_wait(cntr, 1, 0));
    EXPECT(0, fi_enable(ep));
    EXPECT(-FI_EOPBADSTATE, fi_enable(ep));
    EXPECT(-FI_EOPBADSTATE, fi_ep_bind(ep, &cntr->fid, FI_SEND));
    struct sockaddr_storage odd = {.ss_family = 77};
    EXPECT(-FI_EINVAL, fi_connect(ep, &odd, NULL, 0));
    EXPECT(-FI_ENOENT, fi_cancel(&ep->fid, buffer));
    /* What the provider does not have answers as the man pages say. */
    struct fi_av_attr av_attr = {0};
    struct fid_av *av;
    struct fid_ep *other;
    struct fid_poll *poll;
    struct fid_wait *wait;
    struct fid_stx *stx;
    struct fi_poll_attr poll_attr = {0};
    struct fi_wait_attr wait_attr = {.wait_obj = FI_WAIT_UNSPEC};
    EXPECT(-FI_ENOSYS, fi_av_open(pair.domain, &av_attr, &av, NULL));
    EXPECT(-FI_ENOSYS, fi_scalable_ep(pair.domain, pair.info, &other, NULL));
    EXPECT(-FI_ENOSYS, fi_poll_open(pair.domain, &poll_attr, &poll));
    EXPECT(-FI_ENOSYS, fi_wait_open(pair.fabric, &wait_attr, &wait));
    EXPECT(-FI_ENOSYS, fi_stx_context(pair.domain, pair.info->tx_attr, &stx, NULL));
    EXPECT(-FI_ENOSYS, fi_tsend(ep, buffer, 1, NULL, 0, 1, NULL));
    EXPECT(-FI_ENOSYS, fi_trecv(ep, buffer, 1, NULL, 0, 1, 0, NULL));
    EXPECT(-FI_ENOSYS, fi_tinject(ep, buffer, 1, 0, 1));
    EXPECT(-FI_ENOSYS, fi_setname(&ep->fid, &odd, sizeof odd));
    EXPECT(-FI_ENOSYS, fi_tx_context(ep, 0, NULL, &other, NULL));
    EXPECT(-FI_ENOSYS, fi_rx_context(ep, 0, NULL, &other, NULL));
    size_t size = 8;
    EXPECT(-FI_ENOSYS, fi_setopt(&ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &size, 8));
    void *ops;
    EXPECT(-FI_ENOSYS, fi_open_ops(&pair.domain->fid, "any", 0, &ops, NULL));
    struct fi_cq_attr cq_attr = {.format = 77};
    struct fid_cq *none;
    EXPECT(-FI_ENOSYS, fi_cq_open(pair.domain, &cq_attr, &none, NULL));
    cq_attr = (struct fi_cq_attr){.wait_obj = FI_WAIT_MUTEX_COND};
    EXPECT(-FI_ENOSYS, fi_cq_open(pair.domain, &cq_attr, &none, NULL));
    pair.info->ep_attr->type = FI_EP_RDM;
    EXPECT(-FI_EINVAL, fi_endpoint(pair.domain, pair.info, &other, NULL));
    pair.info->ep_attr->type = FI_EP_MSG;
    pair.info->handle = &pair.pep->fid;
    EXPECT(-FI_EINVAL, fi_endpoint(pair.domain, pair.info, &other, NULL));
    pair.info->handle = NULL;
    EXPECT(0, fi_close(&ep->fid));
    EXPECT(0, fi_close(&cq->fid));
    EXPECT(0, fi_close(&cntr->fid));
    /* Events that the program writes. */
    uint32_t kind;
    struct fi_eq_entry written = {.data = 7}, read;
    EXPECT(-FI_EAGAIN, fi_eq_read(pair.eq, &kind, &read, sizeof read, 0));
    EXPECT(sizeof written, fi_eq_write(pair.eq, FI_NOTIFY, &written, sizeof written, 0));
    EXPECT(-FI_ETOOSMALL, fi_eq_read(pair.eq, &kind, &read, 4, 0));
    EXPECT(sizeof read, fi_eq_read(pair.eq, &kind, &read, sizeof read, FI_PEEK));
    EXPECT(sizeof read, fi_eq_read(pair.eq, &kind, &read, sizeof read, 0));
    THAT(kind == FI_NOTIFY && read.data == 7);
    EXPECT(-FI_EAGAIN, fi_eq_sread(pair.eq, &kind, &read, sizeof read, 10, 0));
    close_pair(&pair);
}

static void messages(void) {
    struct pair pair;
    listen_on(&pair);
    connect_both(&pair, &plain);
    struct fid_ep *from = pair.client.ep, *to = pair.server.ep;
    static char sent[1 << 20], got[1 << 20];
    for (size_t at = 0; at < sizeof sent; at++)
        sent[at] = (char)(at * 7 + at / 251);
    const size_t lengths[] = {0, 1, 256, 257, 16384, 16385, 65536, sizeof sent};
    for (size_t at = 0; at < sizeof lengths / sizeof *lengths; at++) {
        size_t length = lengths[at];
        memset(got, 0, sizeof got);
        EXPECT(0, fi_recv(to, got, sizeof got, NULL, 0, got));
        EXPECT(0, fi_send(from, sent, length, NULL, 0, sent));
        struct fi_cq_tagged_entry entry = done(pair.server.rx);
        THAT(entry.op_context == got && entry.buf == got && entry.len == length);
        EXPECT(FI_RECV | FI_MSG, entry.flags);
        THAT(memcmp(sent, got, length) == 0);
        entry = done(pair.client.tx);
        THAT(entry.op_context == sent);
        EXPECT(FI_SEND | FI_MSG, entry.flags);
    }
    /* The buffer of an injected message is free at once; it has no completion. */
    for (size_t at = 0; at < 5; at++) {
        size_t length = lengths[at];
        char *copy = malloc(length + 1);
        memcpy(copy, sent, length);
        EXPECT(0, fi_inject(from, copy, length, 0));
        EXPECT(0, fi_injectdata(from, copy, length, 0x12345678, 0));
        memset(copy, 99, length);
        EXPECT(0, fi_recv(to, got, sizeof got, NULL, 0, got));
        THAT(done(pair.server.rx).len == length);
        THAT(memcmp(sent, got, length) == 0);
        EXPECT(0, fi_recv(to, got, sizeof got, NULL, 0, got));
        struct fi_cq_tagged_entry entry = done(pair.server.rx);
        EXPECT(FI_RECV | FI_MSG | FI_REMOTE_CQ_DATA, entry.flags);
        EXPECT(0x12345678, entry.data);
        free(copy);
    }
    EXPECT(-FI_EMSGSIZE, fi_inject(from, sent, 16385, 0));
    struct fi_cq_tagged_entry none;
    EXPECT(-FI_EAGAIN, fi_cq_read(pair.client.tx, &none, 1));
    /* Pieces at both ends. */
    struct iovec out[] = {{sent, 10}, {sent + 10, 0}, {sent + 10, 30000}, {sent + 30010, 5}};
    struct iovec in[] = {{got, 7}, {got + 7, 20000}, {got + 20007, 20000}};
    memset(got, 0, sizeof got);
    EXPECT(0, fi_recvv(to, in, NULL, 3, 0, NULL));
    EXPECT(0, fi_sendv(from, out, NULL, 4, 0, NULL));
    EXPECT(30015, done(pair.server.rx).len);
    done(pair.client.tx);
    THAT(memcmp(sent, got, 30015) == 0 && got[30015] == 0);
    struct iovec many[9] = {{sent, 1}};
    EXPECT(-FI_EINVAL, fi_sendv(from, many, NULL, 9, 0, NULL));
    EXPECT(-FI_EINVAL, fi_recvv(to, many, NULL, 9, 0, NULL));
    EXPECT(-FI_EINVAL, fi_send(from, NULL, 5, NULL, 0, NULL));
    /* Flags. */
    struct fi_msg msg = {.msg_iov = out, .iov_count = 1, .context = sent, .data = 77};
    EXPECT(0, fi_recv(to, got, sizeof got, NULL, 0, NULL));
    EXPECT(0, fi_sendmsg(from, &msg, FI_INJECT | FI_REMOTE_CQ_DATA | FI_FENCE));
    EXPECT(77, done(pair.server.rx).data);
    THAT(done(pair.client.tx).op_context == sent);
    EXPECT(-FI_EBADFLAGS, fi_sendmsg(from, &msg, FI_PEEK));
    struct fi_msg receive = {.msg_iov = in, .iov_count = 1};
    EXPECT(-FI_EBADFLAGS, fi_recvmsg(to, &receive, FI_MULTI_RECV));
    EXPECT(0, fi_recvmsg(to, &receive, 0));
    EXPECT(0, fi_senddata(from, sent, 7, NULL, 5, 0, NULL));
    EXPECT(5, done(pair.server.rx).data);
    done(pair.client.tx);
    /* Too long for the receive: both learn of it, and the next message arrives. */
    EXPECT(0, fi_recv(to, got, 5, NULL, 0, got));
    EXPECT(0, fi_recv(to, got, 5, NULL, 0, got));
    EXPECT(0, fi_send(from, sent, 6, NULL, 0, sent));
    EXPECT(0, fi_send(from, sent, 5, NULL, 0, NULL));
    struct fi_cq_err_entry failure = failed(pair.server.rx);
    EXPECT(FI_ETRUNC, failure.err);
    THAT(failure.op_context == got);
    EXPECT(FI_ETRUNC, failed(pair.client.tx).err);
    EXPECT(5, done(pair.server.rx).len);
    done(pair.client.tx);
    /* A cancelled receive. */
    EXPECT(0, fi_recv(to, got, 5, NULL, 0, got + 1));
    EXPECT(0, fi_cancel(&to->fid, got + 1));
    failure = failed(pair.server.rx);
    EXPECT(FI_ECANCELED, failure.err);
    THAT(failure.op_context == got + 1);
    char text[12];
    fi_cq_strerror(pair.server.rx, failure.prov_errno, NULL, text, sizeof text);
    EXPECT(0, strcmp(text, "cancelled"));
    /* A short message behind a long one completes behind it. */
    for (int round = 0; round < 50; round++) {
        char *places[4] = {got, got + 300000, got + 300010, got + 600000};
        const size_t each[4] = {300000, 5, 200000, 6};
        for (int at = 0; at < 4; at++)
            EXPECT(0, fi_recv(to, places[at], each[at], NULL, 0, places[at]));
        for (int at = 0; at < 4; at++)
            EXPECT(0, fi_send(from, sent, each[at], NULL, 0, NULL));
        for (int at = 0; at < 4; at++) {
            struct fi_cq_tagged_entry arrived = done(pair.server.rx);
            THAT(arrived.op_context == places[at] && arrived.len == each[at]);
        }
        for (int at = 0; at < 4; at++)
            done(pair.client.tx);
    }
    /* Messages wait for receives, in order. */
    for (int at = 0; at < 500; at++)
        EXPECT(0, fi_inject(from, &at, sizeof at, 0));
    for (int at = 0; at < 500; at++) {
        int number = -1;
        EXPECT(0, fi_recv(to, &number, sizeof number, NULL, 0, NULL));
        done(pair.server.rx);
        EXPECT(at, number);
    }
    close_pair(&pair);
}

/* Each format of completions, and those that are reported by wish. */
static void formats(void) {
    const size_t sizes[] = {8, 24, 40, 48};
    for (int at = 0; at < 4; at++) {
        struct pair pair;
        struct how how = {.format = FI_CQ_FORMAT_CONTEXT + at, .flags = FI_SELECTIVE_COMPLETION};
        listen_on(&pair);
        connect_both(&pair, &how);
        unsigned char bytes[4 * 48];
        char buffer[4] = "abc", got[8];
        struct iovec in = {got, sizeof got}, out = {buffer, sizeof buffer};
        struct fi_msg receive = {.msg_iov = &in, .iov_count = 1, .context = got};
        struct fi_msg send = {.msg_iov = &out, .iov_count = 1, .context = buffer};
        memset(bytes, 0xee, sizeof bytes);
        EXPECT(0, fi_recv(pair.server.ep, got, sizeof got, NULL, 0, NULL));
        EXPECT(0, fi_recvmsg(pair.server.ep, &receive, FI_COMPLETION));
        EXPECT(0, fi_send(pair.client.ep, buffer, sizeof buffer, NULL, 0, NULL));
        EXPECT(0, fi_sendmsg(pair.client.ep, &send, FI_COMPLETION));
        ssize_t read;
        do
            read = fi_cq_read(pair.server.rx, bytes, 4);
        while (read == -FI_EAGAIN);
        EXPECT(1, read);
        void *context;
        memcpy(&context, bytes, sizeof context);
        THAT(context == got);
        EXPECT(0xee, bytes[sizes[at]]);
        do
            read = fi_cq_read(pair.client.tx, bytes, 4);
        while (read == -FI_EAGAIN);
        EXPECT(1, read);
        memcpy(&context, bytes, sizeof context);
        THAT(context == buffer);
        close_pair(&pair);
    }
}

static struct fid_mr *registered(struct pair *pair, void *at, size_t length, uint64_t access) {
    struct fid_mr *mr;
    EXPECT(0, fi_mr_reg(pair->domain, at, length, access, 0, 0, 0, &mr, NULL));
    return mr;
}

static void memory(void) {
    struct pair pair;
    listen_on(&pair);
    connect_both(&pair, &plain);
    struct fid_ep *ep = pair.client.ep;
    static char own[1 << 20], theirs[1 << 20];
    for (size_t at = 0; at < sizeof own; at++)
        own[at] = (char)(at * 3 + at / 251);
    /* Registered at an odd address. */
    char *start = theirs + 5;
    size_t room = sizeof theirs - 100;
    struct fid_mr *mr = registered(&pair, start, room, FI_REMOTE_READ | FI_REMOTE_WRITE);
    uint64_t key = fi_mr_key(mr);
    const size_t lengths[] = {0, 1, 256, 257, 20000, 900000};
    for (size_t at = 0; at < sizeof lengths / sizeof *lengths; at++) {
        size_t length = lengths[at];
        memset(theirs, 0, sizeof theirs);
        EXPECT(0, fi_write(ep, own, length, NULL, 0, 3, key, own));
        struct fi_cq_tagged_entry entry = done(pair.client.tx);
        EXPECT(FI_WRITE | FI_RMA, entry.flags);
        THAT(entry.op_context == own);
        THAT(memcmp(own, start + 3, length) == 0 && start[3 + length] == 0 && start[2] == 0);
        static char back[1 << 20];
        memset(back, 0, sizeof back);
        EXPECT(0, fi_read(ep, back, length, NULL, 0, 3, key, back));
        entry = done(pair.client.tx);
        EXPECT(FI_READ | FI_RMA, entry.flags);
        THAT(memcmp(own, back, length) == 0);
    }
    /* Pieces. */
    struct iovec out[] = {{own, 100}, {own + 5000, 20000}, {own + 100, 1}};
    EXPECT(0, fi_writev(ep, out, NULL, 3, 0, 40, key, NULL));
    done(pair.client.tx);
    THAT(memcmp(start + 40, own, 100) == 0 && memcmp(start + 140, own + 5000, 20000) == 0);
    THAT(start[20140] == own[100]);
    char a[50] = {0}, b[70] = {0};
    struct iovec in[] = {{a, sizeof a}, {b, sizeof b}};
    EXPECT(0, fi_readv(ep, in, NULL, 2, 0, 40, key, NULL));
    done(pair.client.tx);
    THAT(memcmp(a, start + 40, 50) == 0 && memcmp(b, start + 90, 70) == 0);
    /* With data for the peer: no receive is needed. */
    EXPECT(0, fi_writedata(ep, own, 300, NULL, 0xabcdef01, 0, 0, key, NULL));
    struct fi_cq_tagged_entry entry = done(pair.server.rx);
    EXPECT(FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA, entry.flags);
    EXPECT(0xabcdef01, entry.data);
    EXPECT(300, entry.len);
    done(pair.client.tx);
    char small[9] = "injected";
    EXPECT(0, fi_inject_write(ep, small, 9, 0, 8, key));
    EXPECT(0, fi_inject_writedata(ep, small, 9, 6, 0, 100, key));
    memset(small, 0, sizeof small);
    EXPECT(6, done(pair.server.rx).data);
    THAT(strcmp(start + 8, "injected") == 0 && strcmp(start + 100, "injected") == 0);
    struct fi_rma_iov remote = {.addr = 0, .len = 100, .key = key};
    struct fi_msg_rma msg = {
        .msg_iov = out, .iov_count = 1, .rma_iov = &remote, .rma_iov_count = 1, .data = 3};
    EXPECT(0, fi_writemsg(ep, &msg, FI_REMOTE_CQ_DATA | FI_DELIVERY_COMPLETE));
    EXPECT(3, done(pair.server.rx).data);
    done(pair.client.tx);
    EXPECT(0, fi_readmsg(ep, &msg, FI_FENCE));
    done(pair.client.tx);
    remote.len = 99;
    EXPECT(-FI_EINVAL, fi_writemsg(ep, &msg, 0));
    msg.rma_iov_count = 2;
    EXPECT(-FI_EINVAL, fi_readmsg(ep, &msg, 0));
    EXPECT(-FI_EBADFLAGS, fi_writemsg(ep, &(struct fi_msg_rma){.msg_iov = out,
                                                              .iov_count = 1,
                                                              .rma_iov = &(struct fi_rma_iov){
                                                                  .len = 100, .key = key},
                                                              .rma_iov_count = 1},
                                      FI_PEEK));
    /* What the peer did not permit. */
    EXPECT(0, fi_write(ep, own, 200, NULL, 0, room - 100, key, own));
    EXPECT(FI_EINVAL, failed(pair.client.tx).err);
    EXPECT(-FI_EINVAL, fi_write(ep, own, 200, NULL, 0, UINT64_MAX - 3, key, own));
    EXPECT(0, fi_write(ep, own, 20, NULL, 0, 0, key + (1ull << 50), own));
    struct fi_cq_err_entry failure = failed(pair.client.tx);
    EXPECT(FI_ENOKEY, failure.err);
    THAT(failure.op_context == own && failure.flags & FI_WRITE);
    struct fid_mr *readable = registered(&pair, theirs, 64, FI_REMOTE_READ);
    EXPECT(0, fi_write(ep, own, 20, NULL, 0, 0, fi_mr_key(readable), own));
    EXPECT(FI_EACCES, failed(pair.client.tx).err);
    EXPECT(0, fi_read(ep, own, 20, NULL, 0, 0, fi_mr_key(readable), own));
    done(pair.client.tx);
    EXPECT(0, fi_close(&readable->fid));
    EXPECT(0, fi_read(ep, own, 20, NULL, 0, 0, fi_mr_key(mr), own));
    done(pair.client.tx);
    EXPECT(0, fi_close(&mr->fid));
    EXPECT(0, fi_read(ep, own, 20, NULL, 0, 0, key, own));
    EXPECT(FI_ENOKEY, failed(pair.client.tx).err);
    /* Registrations that are none. */
    EXPECT(-FI_EINVAL, fi_mr_reg(pair.domain, own, 8, 1ull << 40, 0, 0, 0, &mr, NULL));
    EXPECT(-FI_EBADFLAGS, fi_mr_reg(pair.domain, own, 8, FI_READ, 0, 0, FI_RMA_EVENT, &mr, NULL));
    EXPECT(-FI_EINVAL, fi_mr_reg(pair.domain, NULL, 8, FI_REMOTE_READ, 0, 0, 0, &mr, NULL));
    EXPECT(-FI_EINVAL, fi_mr_regv(pair.domain, out, 2, FI_REMOTE_READ, 0, 0, 0, &mr, NULL));
    EXPECT(0, fi_mr_regv(pair.domain, out, 1, FI_REMOTE_READ, 0, 0, 0, &mr, NULL));
    EXPECT(-FI_EBUSY, fi_close(&pair.domain->fid));
    EXPECT(0, fi_close(&mr->fid));
    mr = registered(&pair, own, 8, FI_SEND | FI_RECV);
    EXPECT(0, fi_close(&mr->fid));
    close_pair(&pair);
}

static void atomics(void) {
    struct pair pair;
    listen_on(&pair);
    connect_both(&pair, &plain);
    struct fid_ep *ep = pair.client.ep;
    static uint64_t words[8];
    struct fid_mr *mr = registered(&pair, words, sizeof words, FI_REMOTE_READ | FI_REMOTE_WRITE);
    uint64_t key = fi_mr_key(mr), operand[2] = {5, 6}, result[2] = {0}, compare[2] = {105, 0};
    words[0] = 100, words[1] = 200;
    EXPECT(0, fi_atomic(ep, operand, 2, NULL, 0, 0, key, FI_UINT64, FI_SUM, operand));
    struct fi_cq_tagged_entry entry = done(pair.client.tx);
    EXPECT(FI_ATOMIC | FI_WRITE, entry.flags);
    THAT(words[0] == 105 && words[1] == 206 && entry.op_context == operand);
    EXPECT(0, fi_fetch_atomic(ep, NULL, 2, NULL, result, NULL, 0, 0, key, FI_INT64,
                              FI_ATOMIC_READ, NULL));
    EXPECT(FI_ATOMIC | FI_READ, done(pair.client.tx).flags);
    THAT(result[0] == 105 && result[1] == 206);
    EXPECT(0, fi_compare_atomic(ep, operand, 2, NULL, compare, NULL, result, NULL, 0, 0, key,
                                FI_UINT64, FI_CSWAP, NULL));
    done(pair.client.tx);
    THAT(words[0] == 5 && words[1] == 206 && result[0] == 105 && result[1] == 206);
    /* Words of 32 bits. */
    uint32_t narrow = 3, before = 0;
    words[2] = 0x0000000700000009;
    EXPECT(0, fi_fetch_atomic(ep, &narrow, 1, NULL, &before, NULL, 0, 20, key, FI_UINT32, FI_MAX,
                              NULL));
    done(pair.client.tx);
    THAT(before == 7 && words[2] == 0x0000000700000009);
    EXPECT(0, fi_atomic(ep, &narrow, 1, NULL, 0, 20, key, FI_INT32, FI_ATOMIC_WRITE, NULL));
    done(pair.client.tx);
    THAT(words[2] == 0x0000000300000009);
    EXPECT(0, fi_inject_atomic(ep, &narrow, 1, 0, 16, key, FI_UINT32, FI_BXOR));
    narrow = 0;
    EXPECT(0, fi_fetch_atomic(ep, &narrow, 1, NULL, &before, NULL, 0, 16, key, FI_UINT32, FI_SUM,
                              NULL));
    done(pair.client.tx);
    EXPECT(9 ^ 3, before);
    EXPECT(-FI_EOPNOTSUPP, fi_atomic(ep, operand, 1, NULL, 0, 0, key, FI_DOUBLE, FI_SUM, NULL));
    EXPECT(-FI_EOPNOTSUPP, fi_atomic(ep, operand, 1, NULL, 0, 0, key, FI_INT64, FI_MIN, NULL));
    EXPECT(-FI_EOPNOTSUPP, fi_atomic(ep, operand, 1, NULL, 0, 0, key, FI_UINT64, FI_PROD, NULL));
    EXPECT(-FI_EINVAL, fi_atomic(ep, operand, 0, NULL, 0, 0, key, FI_UINT64, FI_SUM, NULL));
    EXPECT(-FI_EINVAL, fi_atomic(ep, operand, 17, NULL, 0, 0, key, FI_UINT64, FI_SUM, NULL));
    EXPECT(-FI_EINVAL, fi_atomic(ep, operand, 1, NULL, 0, 4, key, FI_UINT64, FI_SUM, NULL));
    EXPECT(-FI_EINVAL, fi_atomic(ep, NULL, 1, NULL, 0, 0, key, FI_UINT64, FI_SUM, NULL));
    EXPECT(0, fi_atomic(ep, operand, 1, NULL, 0, 64, key, FI_UINT64, FI_SUM, NULL));
    EXPECT(FI_EINVAL, failed(pair.client.tx).err);
    size_t count = 0;
    EXPECT(0, fi_atomicvalid(ep, FI_UINT64, FI_SUM, &count));
    EXPECT(16, count);
    EXPECT(0, fi_fetch_atomicvalid(ep, FI_INT32, FI_ATOMIC_READ, &count));
    EXPECT(0, fi_compare_atomicvalid(ep, FI_UINT32, FI_CSWAP, &count));
    EXPECT(-FI_EOPNOTSUPP, fi_compare_atomicvalid(ep, FI_UINT32, FI_CSWAP_LE, &count));
    struct fi_atomic_attr attr;
    EXPECT(0, fi_query_atomic(pair.domain, FI_UINT32, FI_SUM, &attr, FI_FETCH_ATOMIC));
    THAT(attr.size == 4 && attr.count == 16);
    EXPECT(-FI_EOPNOTSUPP, fi_query_atomic(pair.domain, FI_FLOAT, FI_SUM, &attr, 0));
    EXPECT(0, fi_close(&mr->fid));
    close_pair(&pair);
}

static void counters(void) {
    struct pair pair;
    struct how how = {.format = FI_CQ_FORMAT_TAGGED, .counted = 1};
    listen_on(&pair);
    connect_both(&pair, &how);
    struct fid_cntr *sent = pair.client.counter, *got = pair.server.counter;
    char buffer[8] = "count";
    for (int at = 0; at < 3; at++) {
        EXPECT(0, fi_recv(pair.server.ep, buffer, 8, NULL, 0, NULL));
        EXPECT(0, fi_send(pair.client.ep, "count", 6, NULL, 0, NULL));
    }
    EXPECT(0, fi_cntr_wait(sent, 3, 20000));
    EXPECT(0, fi_cntr_wait(got, 3, 20000));
    EXPECT(3, fi_cntr_read(sent));
    EXPECT(0, fi_cntr_readerr(sent));
    EXPECT(-FI_ETIMEDOUT, fi_cntr_wait(sent, 4, 20));
    EXPECT(0, fi_cntr_add(sent, 4));
    EXPECT(7, fi_cntr_read(sent));
    EXPECT(0, fi_cntr_set(sent, 1));
    EXPECT(0, fi_cntr_seterr(sent, 2));
    EXPECT(0, fi_cntr_adderr(sent, 3));
    EXPECT(1, fi_cntr_read(sent));
    EXPECT(5, fi_cntr_readerr(sent));
    EXPECT(0, fi_read(pair.client.ep, buffer, 8, NULL, 0, 0, 1234, NULL));
    EXPECT(-FI_EAVAIL, fi_cntr_wait(sent, 100, 20000));
    EXPECT(6, fi_cntr_readerr(sent));
    int fd = -1;
    EXPECT(0, fi_control(&sent->fid, FI_GETWAIT, &fd));
    THAT(fd >= 0);
    close_pair(&pair);
}

static void shared(void) {
    struct pair pair;
    listen_on(&pair);
    struct how how = {.format = FI_CQ_FORMAT_TAGGED};
    EXPECT(0, fi_srx_context(pair.domain, pair.info->rx_attr, &how.srx, NULL));
    char memory[4][64];
    for (int at = 0; at < 4; at++)
        EXPECT(0, fi_recv(how.srx, memory[at], 64, NULL, 0, memory[at]));
    EXPECT(0, fi_cancel(&how.srx->fid, memory[1]));
    EXPECT(-FI_ENOENT, fi_cancel(&how.srx->fid, memory[1]));
    connect_both(&pair, &how);
    EXPECT(-FI_EOPBADSTATE, fi_recv(pair.server.ep, memory[0], 64, NULL, 0, NULL));
    const int order[] = {0, 2, 3};
    for (int at = 0; at < 3; at++) {
        EXPECT(0, fi_injectdata(pair.client.ep, "shared", 7, 40 + at, 0));
        struct fi_cq_tagged_entry entry = done(pair.server.rx);
        THAT(entry.op_context == memory[order[at]] && entry.len == 7 && entry.buf == entry.op_context);
        EXPECT(40 + at, entry.data);
        THAT(strcmp(memory[order[at]], "shared") == 0);
    }
    /* A message waits for memory. */
    EXPECT(0, fi_inject(pair.client.ep, "late", 5, 0));
    struct fi_cq_tagged_entry none;
    EXPECT(-FI_EAGAIN, fi_cq_read(pair.server.rx, &none, 1));
    EXPECT(0, fi_recv(how.srx, memory[1], 64, NULL, 0, memory[1]));
    THAT(done(pair.server.rx).op_context == memory[1]);
    EXPECT(-FI_EBUSY, fi_close(&how.srx->fid));
    EXPECT(0, fi_recv(how.srx, memory[0], 64, NULL, 0, memory[0]));
    close_end(&pair.server);
    pair.server.ep = NULL;
    EXPECT(0, fi_close(&how.srx->fid));
    close_pair(&pair);
}

static int readable(int fd, int milliseconds) {
    struct pollfd it = {.fd = fd, .events = POLLIN};
    return poll(&it, 1, milliseconds);
}

static void waiting(void) {
    struct pair pair;
    struct how how = {.format = FI_CQ_FORMAT_TAGGED, .wait = FI_WAIT_FD};
    listen_on(&pair);
    connect_both(&pair, &how);
    int fd = -1, kind = -1;
    EXPECT(0, fi_control(&pair.server.rx->fid, FI_GETWAIT, &fd));
    EXPECT(0, fi_control(&pair.server.rx->fid, FI_GETWAITOBJ, &kind));
    EXPECT(FI_WAIT_FD, kind);
    char buffer[8];
    struct fi_cq_tagged_entry entry;
    for (int at = 0; at < 100; at++) {
        EXPECT(0, fi_recv(pair.server.ep, buffer, 8, NULL, 0, buffer));
        EXPECT(0, fi_inject(pair.client.ep, "wake up", 8, 0));
        for (;;) {
            struct fid *fids[] = {&pair.server.rx->fid, &pair.eq->fid};
            int may = fi_trywait(pair.fabric, fids, 2);
            if (may == 0)
                EXPECT(1, readable(fd, 20000));
            else
                EXPECT(-FI_EAGAIN, may);
            ssize_t got = fi_cq_read(pair.server.rx, &entry, 1);
            if (got == 1)
                break;
            EXPECT(-FI_EAGAIN, got);
        }
    }
    EXPECT(-FI_EAGAIN, fi_cq_sread(pair.server.rx, &entry, 1, NULL, 10));
    EXPECT(0, fi_recv(pair.server.ep, buffer, 8, NULL, 0, buffer));
    EXPECT(0, fi_inject(pair.client.ep, "wake up", 8, 0));
    uint64_t source = 0;
    EXPECT(1, fi_cq_sreadfrom(pair.server.rx, &entry, 1, &source, NULL, 20000));
    THAT(source == FI_ADDR_NOTAVAIL);
    EXPECT(0, fi_cq_signal(pair.server.rx));
    EXPECT(-FI_EAGAIN, fi_cq_sread(pair.server.rx, &entry, 1, NULL, -1));
    EXPECT(-FI_EAGAIN, fi_cq_readfrom(pair.server.rx, &entry, 1, &source));
    EXPECT(0, fi_cq_read(pair.server.rx, &entry, 0));
    struct fi_cq_err_entry failure;
    EXPECT(-FI_EAGAIN, fi_cq_readerr(pair.server.rx, &failure, 0));
    close_pair(&pair);
}

/* A process that makes no call serves its memory: this one computes while the child reads and writes. */
static void unattended(void) {
    struct pair pair;
    listen_on(&pair);
    static uint64_t words[1024];
    int keys[2], finished[2];
    THAT(pipe(keys) == 0 && pipe(finished) == 0);
    pid_t child = fork();
    if (child == 0) {
        struct sockaddr_storage address;
        uint64_t key;
        THAT(read(keys[0], &address, sizeof address) == sizeof address);
        THAT(read(keys[0], &key, sizeof key) == sizeof key);
        /* The fabric is the parent's. */
        struct pair own;
        listen_on(&own);
        own.client = endpoint(&own, own.info, &plain);
        EXPECT(0, fi_connect(own.client.ep, &address, "ask", 4));
        struct {
            struct fi_eq_cm_entry entry;
            char data[64];
        } connected;
        event(&own, FI_CONNECTED, &connected, sizeof connected);
        uint64_t got[1024], written[1024];
        for (int round = 0; round < 50; round++) {
            for (int at = 0; at < 1024; at++)
                written[at] = (uint64_t)round * 10000 + at;
            EXPECT(0, fi_write(own.client.ep, written, sizeof written, NULL, 0, 0, key, NULL));
            done(own.client.tx);
            EXPECT(0, fi_read(own.client.ep, got, sizeof got, NULL, 0, 0, key, NULL));
            done(own.client.tx);
            THAT(memcmp(got, written, sizeof got) == 0);
        }
        THAT(write(finished[1], "x", 1) == 1);
        close_pair(&own);
        exit(0);
    }
    struct fid_mr *mr = registered(&pair, words, sizeof words, FI_REMOTE_READ | FI_REMOTE_WRITE);
    uint64_t key = fi_mr_key(mr);
    THAT(write(keys[1], &pair.address, sizeof pair.address) == sizeof pair.address);
    THAT(write(keys[1], &key, sizeof key) == sizeof key);
    struct {
        struct fi_eq_cm_entry entry;
        char data[64];
    } asked;
    event(&pair, FI_CONNREQ, &asked, sizeof asked);
    pair.server = endpoint(&pair, asked.entry.info, &plain);
    fi_freeinfo(asked.entry.info);
    EXPECT(0, fi_accept(pair.server.ep, "yes!", 5));
    event(&pair, FI_CONNECTED, &asked, sizeof asked);
    /* No call of libfabric from here on. */
    THAT(readable(finished[0], 30000) == 1);
    THAT(words[1023] == 49 * 10000 + 1023);
    int status;
    THAT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT(0, fi_close(&mr->fid));
    close_pair(&pair);
}

/* A peer with the key of another job, and one that dies. */
static void strangers(void) {
    static const char one[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    static const char other[] = "ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100";
    setenv("FI_ZEROLANE_SECURITY", "sealed", 1);
    setenv("FI_ZEROLANE_KEY", one, 1);
    for (int killed = 0; killed < 2; killed++) {
        struct pair pair;
        listen_on(&pair);
        pid_t child = fork();
        if (child == 0) {
            if (!killed)
                setenv("FI_ZEROLANE_KEY", other, 1), setenv("FI_ZEROLANE_CONNECT_TIMEOUT", "2", 1);
            struct pair own;
            listen_on(&own);
            own.client = endpoint(&own, own.info, &plain);
            EXPECT(0, fi_connect(own.client.ep, &pair.address, "ask", 4));
            struct {
                struct fi_eq_cm_entry entry;
                char data[64];
            } connected;
            if (killed) {
                event(&own, FI_CONNECTED, &connected, sizeof connected);
                _exit(0);
            }
            EXPECT(FI_ETIMEDOUT, unconnected(&own).err);
            close_pair(&own);
            exit(0);
        }
        int status;
        if (killed) {
            struct {
                struct fi_eq_cm_entry entry;
                char data[64];
            } asked;
            event(&pair, FI_CONNREQ, &asked, sizeof asked);
            pair.server = endpoint(&pair, asked.entry.info, &plain);
            fi_freeinfo(asked.entry.info);
            char buffer[8];
            EXPECT(0, fi_recv(pair.server.ep, buffer, 8, NULL, 0, buffer));
            EXPECT(0, fi_accept(pair.server.ep, NULL, 0));
            event(&pair, FI_CONNECTED, &asked, sizeof asked);
            event(&pair, FI_SHUTDOWN, &asked, sizeof asked);
            THAT(failed(pair.server.rx).op_context == buffer);
        }
        /* A stranger is not answered, and the program does not hear of it. */
        THAT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
        uint32_t kind;
        struct fi_eq_cm_entry none;
        EXPECT(-FI_EAGAIN, fi_eq_read(pair.eq, &kind, &none, sizeof none, 0));
        close_pair(&pair);
    }
}

/* A child of fork cannot use the fabric of its parent, and does not disturb it. */
static void forked(void) {
    struct pair pair;
    listen_on(&pair);
    connect_both(&pair, &plain);
    char buffer[8] = "parent";
    struct fid_mr *mr = registered(&pair, buffer, 8, FI_REMOTE_READ), *none;
    pid_t child = fork();
    if (child == 0) {
        struct fi_cq_tagged_entry entry;
        struct fi_eq_cm_entry event;
        uint32_t kind;
        EXPECT(-FI_EPERM, fi_send(pair.client.ep, buffer, 8, NULL, 0, NULL));
        EXPECT(-FI_EPERM, fi_recv(pair.client.ep, buffer, 8, NULL, 0, NULL));
        EXPECT(-FI_EPERM, fi_cq_read(pair.client.tx, &entry, 1));
        EXPECT(-FI_EPERM, fi_eq_read(pair.eq, &kind, &event, sizeof event, 0));
        EXPECT(-FI_EPERM, fi_mr_reg(pair.domain, buffer, 8, FI_REMOTE_READ, 0, 0, 0, &none, NULL));
        EXPECT(-FI_EPERM, fi_close(&pair.client.ep->fid));
        EXPECT(-FI_EPERM, fi_close(&pair.pep->fid));
        EXPECT(0, fi_close(&mr->fid));
        exit(0);
    }
    int status;
    THAT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    char got[8];
    EXPECT(0, fi_read(pair.client.ep, got, 8, NULL, 0, 0, fi_mr_key(mr), NULL));
    done(pair.client.tx);
    EXPECT(0, strcmp(got, "parent"));
    EXPECT(0, fi_close(&mr->fid));
    close_pair(&pair);
}

/* An endpoint that is closed with receives posted: what comes late of it meets no receive of the next one. */
static void reopened(void) {
    enum { RECEIVES = 64 };
    struct pair pair;
    listen_on(&pair);
    int numbers[RECEIVES];
    for (int round = 0; round < 5; round++) {
        struct {
            struct fi_eq_cm_entry entry;
            char data[64];
        } asked;
        pair.client = endpoint(&pair, pair.info, &plain);
        for (int at = 0; at < RECEIVES; at++)
            EXPECT(0, fi_recv(pair.client.ep, &numbers[at], 4, NULL, 0, NULL));
        EXPECT(0, fi_connect(pair.client.ep, &pair.address, "ask", 4));
        event(&pair, FI_CONNREQ, &asked, sizeof asked);
        EXPECT(0, fi_reject(pair.pep, asked.entry.info->handle, "no", 3));
        fi_freeinfo(asked.entry.info);
        close_end(&pair.client);
        connect_both(&pair, &plain);
        for (int at = 0; at < RECEIVES; at++)
            EXPECT(0, fi_recv(pair.server.ep, &numbers[at], 4, NULL, 0, &numbers[at]));
        for (int at = 0; at < RECEIVES; at++)
            EXPECT(0, fi_inject(pair.client.ep, &at, sizeof at, 0));
        for (int at = 0; at < RECEIVES; at++) {
            THAT(done(pair.server.rx).op_context == &numbers[at]);
            EXPECT(at, numbers[at]);
        }
        close_end(&pair.client);
        close_end(&pair.server);
    }
    pair.client.ep = pair.server.ep = NULL;
    close_pair(&pair);
}

/* Many connections of one process, each with a message of its own. */
static void many(void) {
    enum { COUNT = 200 };
    struct pair pair;
    static struct end clients[COUNT], servers[COUNT];
    listen_on(&pair);
    for (int at = 0; at < COUNT; at++) {
        connect_both(&pair, &plain);
        clients[at] = pair.client, servers[at] = pair.server;
    }
    for (int at = 0; at < COUNT; at++)
        EXPECT(0, fi_inject(clients[at].ep, &at, sizeof at, 0));
    for (int at = 0; at < COUNT; at++) {
        int got = -1;
        EXPECT(0, fi_recv(servers[at].ep, &got, sizeof got, NULL, 0, NULL));
        done(servers[at].rx);
        EXPECT(at, got);
    }
    for (int at = 0; at < COUNT; at++) {
        close_end(&clients[at]);
        close_end(&servers[at]);
    }
    pair.client.ep = pair.server.ep = NULL;
    close_pair(&pair);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {
        {"info", info},         {"connections", connections}, {"rejections", rejections},
        {"misuse", misuse},     {"messages", messages},       {"formats", formats},
        {"memory", memory},     {"atomics", atomics},         {"counters", counters},
        {"shared", shared},     {"waiting", waiting},         {"unattended", unattended},
        {"strangers", strangers}, {"many", many},
        {"reopened", reopened}, {"forked", forked},
    };
    for (size_t at = 0; at < sizeof cases / sizeof *cases; at++)
        if (argc == 2 && strcmp(argv[1], cases[at].name) == 0) {
            alarm(100);
            cases[at].run();
            return 0;
        }
    fprintf(stderr, "no case of that name\n");
    return 2;
}
