/* Is the program of the tests of `zerolane run --trap`: a client, a server, and calls that signals interrupt. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LENGTH = 3 << 20, PATIENCE = 100 };

#define CHECK(what) \
    do { if (!(what)) { printf("line %d: %s: %s\n", __LINE__, #what, strerror(errno)); exit(1); } } while (0)

static unsigned char content(size_t at) { return (unsigned char)(at * 7 + (at >> 8) * 13 + (at >> 16)); }

static socklen_t address(struct sockaddr_storage *to, const char *host, int port) {
    memset(to, 0, sizeof *to);
    struct sockaddr_in *v4 = (void *)to;
    struct sockaddr_in6 *v6 = (void *)to;
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET, v4->sin_port = htons(port);
        return sizeof *v4;
    }
    CHECK(inet_pton(AF_INET6, host, &v6->sin6_addr) == 1);
    v6->sin6_family = AF_INET6, v6->sin6_port = htons(port);
    return sizeof *v6;
}

static int listens(const char *host, int port, int backlog) {
    struct sockaddr_storage own;
    socklen_t length = address(&own, host, port);
    int listener = socket(own.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    CHECK(listener >= 0 && setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    CHECK(bind(listener, (void *)&own, length) == 0 && listen(listener, backlog) == 0);
    return listener;
}

/* The socket's own address and its peer's are the other end's peer and own address. */
static void tell(int socket, struct sockaddr_storage *local, struct sockaddr_storage *peer) {
    socklen_t length = sizeof *local;
    CHECK(getsockname(socket, (void *)local, &length) == 0);
    length = sizeof *peer;
    CHECK(getpeername(socket, (void *)peer, &length) == 0);
}

/* Sends back what comes, after both addresses. */
static void serve(const char *host, int port, int times) {
    int listener = listens(host, port, 16);
    printf("listens\n");
    fflush(stdout);
    for (int i = 0; i < times; i++) {
        struct sockaddr_storage names[2], from;
        socklen_t length = sizeof from;
        /* Both calls that accept. */
        int client = i % 2 ? accept(listener, (void *)&from, &length)
                           : accept4(listener, (void *)&from, &length, SOCK_CLOEXEC);
        CHECK(client >= 0 && (fcntl(client, F_GETFD) == FD_CLOEXEC) == (i % 2 == 0));
        tell(client, &names[0], &names[1]);
        CHECK(memcmp(&from, &names[1], length) == 0);
        CHECK(write(client, names, sizeof names) == sizeof names);
        static unsigned char bytes[LENGTH];
        size_t got = 0;
        ssize_t more;
        while ((more = read(client, bytes + got, LENGTH - got)) > 0)
            got += more;
        CHECK(more == 0);
        for (size_t done = 0; done < got; done += more)
            CHECK((more = write(client, bytes + done, got - done)) > 0);
        close(client);
    }
}

static void exchange(int socket) {
    struct sockaddr_storage own[2], theirs[2];
    memset(own, 0, sizeof own);
    tell(socket, &own[0], &own[1]);
    for (size_t got = 0; got < sizeof theirs;) {
        ssize_t more = read(socket, (char *)theirs + got, sizeof theirs - got);
        CHECK(more > 0);
        got += more;
    }
    size_t length = own[0].ss_family == AF_INET ? 8 : 24;
    CHECK(memcmp(&own[0], &theirs[1], length) == 0 && memcmp(&own[1], &theirs[0], length) == 0);
    static unsigned char sent[LENGTH - 1], got[LENGTH];
    for (size_t i = 0; i < sizeof sent; i++)
        sent[i] = content(i);
    for (size_t done = 0; done < sizeof sent;) {
        ssize_t more = write(socket, sent + done, sizeof sent - done);
        CHECK(more > 0);
        done += more;
    }
    CHECK(shutdown(socket, SHUT_WR) == 0);
    size_t all = 0;
    for (ssize_t more = 1; more > 0; all += more)
        CHECK((more = read(socket, got + all, sizeof got - all)) >= 0);
    CHECK(all == sizeof sent && memcmp(sent, got, all) == 0);
    printf("the same\n");
}

static void ask(const char *host, int port, int by_epoll) {
    struct sockaddr_storage to;
    socklen_t length = address(&to, host, port);
    int own = socket(to.ss_family, SOCK_STREAM | (by_epoll ? SOCK_NONBLOCK : 0), 0);
    CHECK(own >= 0);
    if (!by_epoll) {
        if (connect(own, (void *)&to, length) != 0) {
            printf("connect: %s\n", strerror(errno));
            exit(0);
        }
        return exchange(own);
    }
    /* Registered before it connects, in two sets. */
    int sets[2] = {epoll_create1(EPOLL_CLOEXEC), epoll_create1(0)};
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP, .data.u64 = 0x123456789abcdef};
    for (int i = 0; i < 2; i++)
        CHECK(epoll_ctl(sets[i], EPOLL_CTL_ADD, own, &event) == 0);
    CHECK(connect(own, (void *)&to, length) == 0 || errno == EINPROGRESS);
    for (int i = 0; i < 2; i++) {
        struct epoll_event seen = {0};
        do
            CHECK(epoll_wait(sets[i], &seen, 1, PATIENCE * 1000) == 1 && seen.data.u64 == event.data.u64);
        while (!(seen.events & EPOLLOUT));
    }
    int error = -1;
    length = sizeof error;
    CHECK(getsockopt(own, SOL_SOCKET, SO_ERROR, &error, &length) == 0);
    if (error != 0) {
        printf("connect: %s\n", strerror(error));
        exit(0);
    }
    CHECK(fcntl(own, F_GETFL) & O_NONBLOCK && fcntl(own, F_GETFD) == 0);
    /* Each set has it once, and gives it up. */
    for (int i = 0; i < 2; i++) {
        struct epoll_event seen[4];
        CHECK(epoll_wait(sets[i], seen, 4, 0) == 1);
        CHECK(epoll_ctl(sets[i], EPOLL_CTL_MOD, own, &event) == 0);
        CHECK(epoll_ctl(sets[i], EPOLL_CTL_DEL, own, &event) == 0);
        CHECK(epoll_wait(sets[i], seen, 4, 0) == 0);
    }
    CHECK(fcntl(own, F_SETFL, 0) == 0);
    exchange(own);
}

static volatile sig_atomic_t rang;

static void ring(int signal) { (void)signal, rang++; }

/* A signal in 300 ms, after which calls go on or not. */
static void rings(int flags) {
    struct sigaction action = {.sa_handler = ring, .sa_flags = flags};
    struct itimerval timer = {.it_value = {.tv_usec = 300000}};
    rang = 0;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

/* A child that goes on in a second: 0 in the child. */
static pid_t child(void) {
    pid_t made = fork();
    CHECK(made >= 0);
    if (made == 0)
        sleep(1);
    return made;
}

static void signals(int port) {
    struct sockaddr_storage to;
    socklen_t length = address(&to, "127.0.0.1", port);
    int listener = listens("127.0.0.1", port, 0);
    rings(0);
    CHECK(accept(listener, NULL, NULL) == -1 && errno == EINTR && rang == 1);
    if (child() == 0) {
        int own = socket(AF_INET, SOCK_STREAM, 0);
        _exit(connect(own, (void *)&to, length) || write(own, "a", 1) != 1);
    }
    rings(SA_RESTART);
    int client = accept(listener, NULL, NULL);
    char byte = 0;
    CHECK(client >= 0 && rang == 1 && read(client, &byte, 1) == 1 && byte == 'a');
    close(client), wait(NULL);
    struct timeval patience = {.tv_usec = 100000};
    CHECK(setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    CHECK(accept(listener, NULL, NULL) == -1 && errno == EAGAIN);
    /* One connection fills the queue; the next must wait. */
    int first = socket(AF_INET, SOCK_STREAM, 0), second = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(first, (void *)&to, length) == 0);
    rings(0);
    CHECK(connect(second, (void *)&to, length) == -1 && errno == EINTR && rang == 1);
    patience = (struct timeval){.tv_sec = PATIENCE};
    CHECK(setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    int ends[2] = {accept(listener, NULL, NULL), -1};
    struct pollfd look = {.fd = second, .events = POLLOUT};
    CHECK(poll(&look, 1, PATIENCE * 1000) == 1 && look.revents == POLLOUT && write(second, "b", 1) == 1);
    CHECK((ends[1] = accept(listener, NULL, NULL)) >= 0 && read(ends[1], &byte, 1) == 1 && byte == 'b');
    int third = socket(AF_INET, SOCK_STREAM, 0);
    int fourth = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(third, (void *)&to, length) == 0);
    pid_t other = child();
    if (other == 0) {
        CHECK(accept(listener, NULL, NULL) >= 0);
        sleep(PATIENCE);
        _exit(0);
    }
    rings(SA_RESTART);
    CHECK(connect(fourth, (void *)&to, length) == 0 && rang == 1 && write(fourth, "c", 1) == 1);
    CHECK((client = accept(listener, NULL, NULL)) >= 0 && read(client, &byte, 1) == 1 && byte == 'c');
    printf("as expected\n");
    kill(other, SIGKILL);
}

/* Connects again and again, and says what it meets first. */
static void again(int port) {
    struct sockaddr_storage to;
    socklen_t length = address(&to, "127.0.0.1", port);
    for (int i = 0; i < PATIENCE * 20; i++, usleep(50000)) {
        int own = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(own, (void *)&to, length) != 0 && errno != ECONNREFUSED) {
            printf("met: %s\n", strerror(errno));
            fflush(stdout);
            exit(0);
        }
        if (i == 0) {
            printf("begins\n");
            fflush(stdout);
        }
        close(own);
    }
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    if (!strcmp(what, "serve"))
        serve(words[2], atoi(words[3]), atoi(words[4]));
    else if (!strcmp(what, "ask"))
        ask(words[2], atoi(words[3]), count > 4);
    else if (!strcmp(what, "signals"))
        signals(atoi(words[2]));
    else if (!strcmp(what, "again"))
        again(atoi(words[2]));
    else
        return 3;
    return 0;
}
