"""Checks what socket calls do: all cases, or those named. The kernel's TCP must pass them, and so must `zerolane run`."""

import array, errno, fcntl, os, random, resource, select, signal, socket, struct, sys, tempfile, termios, threading, time, traceback

HOST = "127.0.0.1"
WAIT = 60

def listener(family=socket.AF_INET, host=HOST):
    s = socket.socket(family); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((host, 0)); s.listen(64); s.settimeout(WAIT); return s
def pair(l=None, **o):
    l = l or listener()
    c = socket.socket(l.family); c.settimeout(WAIT); c.connect(l.getsockname())
    a, who = l.accept(); a.settimeout(WAIT)
    return c, a, who
def read_all(s):
    out = bytearray()
    while True:
        b = s.recv(1 << 16)
        if not b: return bytes(out)
        out += b
def content(n, seed=1):
    return random.Random(seed).randbytes(n)
def names():
    l = listener(); c, a, who = pair(l)
    assert c.getpeername() == l.getsockname(), (c.getpeername(), l.getsockname())
    assert a.getpeername() == c.getsockname() == who, (a.getpeername(), c.getsockname(), who)
    assert a.getsockname() == l.getsockname()
    assert c.family == socket.AF_INET and c.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN) == socket.AF_INET
    assert c.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_STREAM
    d = c.dup(); assert d.getpeername() == l.getsockname()
def names_v6():
    l = listener(socket.AF_INET6, "::1"); c, a, who = pair(l)
    assert c.getpeername()[:2] == l.getsockname()[:2]
    assert a.getpeername()[:2] == c.getsockname()[:2] == who[:2]
    c.sendall(b"x"); assert a.recv(1) == b"x"
def names_mapped():
    l = socket.socket(socket.AF_INET6); l.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    l.bind(("::", 0)); l.listen(5); l.settimeout(WAIT); port = l.getsockname()[1]
    c = socket.create_connection((HOST, port), WAIT); a, who = l.accept(); a.settimeout(WAIT)
    assert who[0] == "::ffff:127.0.0.1" and a.getpeername()[0] == who[0], (who, a.getpeername())
    assert a.getpeername()[1] == c.getsockname()[1]
    c.sendall(b"x"); assert a.recv(1) == b"x"; a.sendall(b"y"); assert c.recv(1) == b"y"
def options():
    c, a, _ = pair()
    for s in (c, a):
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        assert s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        assert len(s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)) == 104
        assert s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == 1
        assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        assert s.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) > 0
        s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 8); assert s.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) == 8
    l = listener(); c = socket.socket(); c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    c.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 3, 0))
    c.connect(l.getsockname())
    assert c.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) and c.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert c.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16) == struct.pack("ll", 3, 0)
def bytes_both_ways():
    c, a, _ = pair(); sent = [content(5_000_000, 1), content(3_000_000, 2)]; got = [None, None]
    def end(s, i):
        t = threading.Thread(target=lambda: (s.sendall(sent[i]), s.shutdown(socket.SHUT_WR))); t.start()
        got[i] = read_all(s); t.join()
    ts = [threading.Thread(target=end, args=x) for x in ((c, 0), (a, 1))]
    [t.start() for t in ts]; [t.join() for t in ts]
    assert got == sent[::-1]
def half_close():
    c, a, _ = pair(); c.sendall(b"question"); c.shutdown(socket.SHUT_WR)
    assert read_all(a) == b"question"
    time.sleep(0.1); a.sendall(b"answer"); a.close(); assert read_all(c) == b"answer"
def close_ends():
    c, a, _ = pair(); c.close(); assert a.recv(1) == b""
    try:
        for _ in range(200): a.send(b"x"); time.sleep(0.02)
        assert False, "no error"
    except OSError as e: assert e.errno in (errno.EPIPE, errno.ECONNRESET), e
def reset():
    for client in (True, False):
        c, a, _ = pair(); one, other = (c, a) if client else (a, c)
        one.sendall(b"x"); assert other.recv(1) == b"x"
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)); one.close()
        try: other.recv(1); assert False, "no reset"
        except ConnectionResetError: pass
def unread_close_resets():
    c, a, _ = pair(); c.sendall(b"unread"); select.select([a], [], [], WAIT); time.sleep(0.1); a.close()
    try: assert c.recv(1) != b"", "an end, not a reset"
    except ConnectionResetError: pass
def refused():
    l = listener(); where = l.getsockname(); l.close()
    c = socket.socket()
    try: c.connect(where); assert False
    except ConnectionRefusedError: pass
    c = socket.socket(); c.setblocking(False); assert c.connect_ex(where) in (errno.EINPROGRESS, errno.ECONNREFUSED)
    select.select([], [c], [], WAIT)
    assert c.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) in (errno.ECONNREFUSED, 0)
def nonblocking(add_before=False, edge=False):
    l = listener(); c = socket.socket(); c.setblocking(False); e = select.epoll()
    how = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | (select.EPOLLET if edge else 0)
    if add_before: e.register(c, how)
    r = c.connect_ex(l.getsockname()); assert r in (0, errno.EINPROGRESS), r
    if not add_before: e.register(c, how)
    until = time.time() + WAIT
    while True:
        ev = dict(e.poll(1)).get(c.fileno(), 0)
        if ev & select.EPOLLOUT and not ev & select.EPOLLHUP: break
        assert time.time() < until, ev
    assert c.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    assert edge or len(e.poll(1)) == 1, "the set has two sockets"
    assert c.connect_ex(l.getsockname()) in (0, errno.EISCONN)
    assert c.getpeername() == l.getsockname()
    a, _ = l.accept(); a.settimeout(WAIT)
    try: c.recv(1); assert False
    except BlockingIOError: pass
    a.sendall(b"hello")
    while not dict(e.poll(1)).get(c.fileno(), 0) & select.EPOLLIN: assert time.time() < until
    assert c.recv(10) == b"hello"
    a.sendall(b"again")
    while not dict(e.poll(1)).get(c.fileno(), 0) & select.EPOLLIN: assert time.time() < until
    assert c.recv(10) == b"again"
    a.close()
    while not dict(e.poll(1)).get(c.fileno(), 0) & select.EPOLLRDHUP: assert time.time() < until
    assert c.recv(1) == b""
    e.modify(c, select.EPOLLOUT); e.unregister(c)
def nonblocking_added_before(): nonblocking(True)
def nonblocking_edge(): nonblocking(False, True); nonblocking(True, True)
def fills_up():
    c, a, _ = pair(); c.setblocking(False); sent = 0; quiet = 0; block = content(1 << 16)
    while quiet < 25:
        try: sent += c.send(block[sent % (1 << 16):]); quiet = 0
        except BlockingIOError: quiet += 1; time.sleep(0.02)
        assert sent < 200 << 20, "it never fills"
    assert select.select([], [c], [], 0)[1] == []
    got = 0; p = select.poll(); p.register(c, select.POLLOUT)
    while got < sent:
        b = a.recv(1 << 20); assert b
        for at in (0, len(b) - 1): assert b[at] == block[(got + at) % (1 << 16)]
        got += len(b)
    assert p.poll(WAIT * 1000)[0][1] & select.POLLOUT
def many():
    l = listener(); cs = []
    for i in range(60): c, a, _ = pair(l); cs.append((c, a))
    for i, (c, a) in enumerate(cs): c.sendall(bytes([i]) * 100)
    for i, (c, a) in enumerate(cs):
        got = b""
        while len(got) < 100: got += a.recv(100)
        assert got == bytes([i]) * 100
def threads():
    l = listener(); out = []
    def serve():
        for _ in range(32):
            a, _ = l.accept(); a.settimeout(WAIT)
            threading.Thread(target=lambda a=a: (a.sendall(read_all(a)), a.close())).start()
    def client(i):
        c = socket.create_connection(l.getsockname(), WAIT); d = content(50_000, i)
        c.sendall(d); c.shutdown(socket.SHUT_WR); out.append(read_all(c) == d)
    t = threading.Thread(target=serve); t.start()
    ts = [threading.Thread(target=client, args=(i,)) for i in range(32)]
    [x.start() for x in ts]; [x.join() for x in ts]; t.join()
    assert out == [True] * 32, out
def forks():
    l = listener(); kids = []
    for i in range(4):
        k = os.fork()
        if k == 0:
            a, _ = l.accept(); a.settimeout(WAIT); d = read_all(a); a.sendall(d[::-1]); os._exit(0)
        kids.append(k)
    for i in range(4):
        c = socket.create_connection(l.getsockname(), WAIT); d = content(100_000, i); c.sendall(d); c.shutdown(socket.SHUT_WR)
        assert read_all(c) == d[::-1]
    for k in kids: assert os.waitpid(k, 0)[1] == 0
    # A child goes on with the parent's connection.
    c, a, _ = pair(l)
    if os.fork() == 0: a.sendall(b"child"); os._exit(0)
    a.close(); os.wait(); assert read_all(c) == b"child"
def execs():
    l = listener(); c, a, _ = pair(l); os.set_inheritable(a.fileno(), True)
    code = "import socket,sys; s=socket.socket(fileno=int(sys.argv[1])); s.sendall(repr(s.getpeername()).encode())"
    if os.fork() == 0: os.execv(sys.executable, [sys.executable, "-c", code, str(a.fileno())])
    a.close(); os.wait(); assert read_all(c) == repr(c.getsockname()).encode()
def passed():
    c, a, _ = pair(); x, y = socket.socketpair()
    socket.send_fds(x, [b"x"], [a.fileno()]); _, fds, _, _ = socket.recv_fds(y, 1, 1); a.close()
    b = socket.socket(fileno=fds[0]); b.settimeout(WAIT); assert b.getpeername() == c.getsockname()
    c.sendall(b"x"); assert b.recv(1) == b"x"; b.close(); assert c.recv(1) == b""
def peek_and_pieces():
    c, a, _ = pair(); c.sendmsg([b"ab", b"cd", b"ef"])
    time.sleep(0.1); assert a.recv(3, socket.MSG_PEEK) == b"abc"
    assert a.recv(6, socket.MSG_WAITALL) == b"abcdef"
    c.sendall(b"12345"); select.select([a], [], [], WAIT); time.sleep(0.2)
    n = array.array("i", [0]); fcntl.ioctl(a, termios.FIONREAD, n); assert n[0] == 5
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
def sends_file():
    c, a, _ = pair(); d = content(2_000_000)
    with tempfile.TemporaryFile() as f:
        f.write(d); f.flush(); f.seek(0)
        t = threading.Thread(target=lambda: (c.sendfile(f), c.shutdown(socket.SHUT_WR))); t.start(); assert read_all(a) == d; t.join()
def bound():
    l = listener(); p = socket.socket(); p.bind((HOST, 0)); port = p.getsockname()[1]; p.close()
    c = socket.socket(); c.settimeout(WAIT); c.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); c.bind((HOST, port)); c.connect(l.getsockname()); a, who = l.accept()
    assert who == (HOST, port) == c.getsockname(); c.sendall(b"x"); assert a.recv(1) == b"x"
def accepts_late():
    l = listener(); c = socket.create_connection(l.getsockname(), WAIT); c.sendall(b"early"); time.sleep(4)
    a, _ = l.accept(); a.settimeout(WAIT); assert a.recv(10) == b"early"; a.sendall(b"late"); assert c.recv(10) == b"late"
def speaks_first():
    l = listener(); c, a, _ = pair(l); a.sendall(b"220 hello"); assert c.recv(20) == b"220 hello"
def udp_port():
    for turn in range(20):  # Another program may have the UDP port of this number.
        l = listener(); u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try: u.bind(l.getsockname()); break
        except OSError as e: assert e.errno == errno.EADDRINUSE and turn < 19, e
    v = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); v.settimeout(WAIT); v.sendto(b"x", l.getsockname()); assert u.recv(9) == b"x"
    c, a, _ = pair(l); c.sendall(b"x"); assert a.recv(1) == b"x"
def few_descriptors():
    l = listener(); resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24)); held = []
    try:
        while True: held.append(socket.socket())
    except OSError as e: assert e.errno == errno.EMFILE
    held.pop().close(); held.pop().close()
    c, a, _ = pair(l); c.sendall(b"x"); assert a.recv(1) == b"x"
def random_ends():
    """Writes random lengths both ways and ends at random: what arrives is always the beginning of what was sent."""
    dice = random.Random(47); l = listener()
    for turn in range(100):
        c, a, _ = pair(l); n, m = dice.choice([0, 1, 1000, 70_000, 400_000]), dice.choice([0, 1, 5000, 300_000])
        one, other = content(n, turn), content(m, -turn - 1); how = dice.choice(["half", "close", "reset"])
        def write():
            try: a.sendall(other)
            except OSError: assert how != "half", turn
        def serve():
            got = b""
            try:
                t = threading.Thread(target=write); t.start()
                got = read_all(a); t.join(); a.shutdown(socket.SHUT_WR)
            except OSError as e: assert how != "half" and e.errno in (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN), e
            assert one.startswith(got) and (how == "reset" or n > 0 and how == "close" and m > 0 or got == one), (turn, how, len(got))
        failed = []
        def guarded():
            try: serve()
            except BaseException: failed.append(traceback.format_exc())
        t = threading.Thread(target=guarded); t.start()
        c.sendall(one)
        if how == "half":
            c.shutdown(socket.SHUT_WR); assert read_all(c) == other, turn
        elif how == "reset": c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        c.close(); t.join(WAIT); assert not t.is_alive() and not failed, failed
        a.close()
def unix_sockets():
    x, y = socket.socketpair(); x.sendall(b"x"); assert y.recv(1) == b"x"; assert x.getpeername() in ("", b"")
def main():
    cases = {k: v for k, v in globals().items() if callable(v) and k not in ("listener", "pair", "read_all", "content", "main", "nonblocking") and v.__module__ == "__main__"}
    cases["nonblocking"] = nonblocking
    chosen = sys.argv[1:] or list(cases)
    signal.alarm(120 * max(1, len(chosen)))
    bad = 0
    for name in chosen:
        k = os.fork()
        if k == 0:
            signal.alarm(100)
            try: cases[name](); os._exit(0)
            except BaseException:
                traceback.print_exc(); sys.stderr.flush(); os._exit(1)
        s = os.waitpid(k, 0)[1]; print(name, "ok" if s == 0 else f"FAILED {s}", flush=True); bad += s != 0
    sys.exit(1 if bad else 0)
main()
