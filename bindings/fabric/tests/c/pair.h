/* Two connected endpoints of one process, and what the cases do with them. */
#ifndef PAIR_H
#define PAIR_H

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define VERSION FI_VERSION(1, 17)

#define EXPECT(wanted, expression)                                                             \
    do {                                                                                       \
        long long got_ = (long long)(expression), wanted_ = (long long)(wanted);               \
        if (got_ != wanted_) {                                                                 \
            fprintf(stderr, "%s:%d: %s is %lld (%s), not %lld\n", __FILE__, __LINE__,          \
                    #expression, got_, fi_strerror((int)(got_ < 0 ? -got_ : got_)), wanted_);  \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)

#define THAT(condition)                                                                        \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            fprintf(stderr, "%s:%d: not %s\n", __FILE__, __LINE__, #condition);                \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)

/* One end. */
struct end {
    struct fid_ep *ep;
    struct fid_cq *tx, *rx;
    struct fid_cntr *counter;
};

struct pair {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_eq *eq;
    struct fid_pep *pep;
    struct sockaddr_storage address;
    struct end client, server;
};

/* How endpoints are made. */
struct how {
    enum fi_cq_format format;
    enum fi_wait_obj wait;
    uint64_t flags; /* of the binding to completion queues */
    int counted;
    struct fid_ep *srx;
};

static inline struct fi_info *hints_for(uint64_t caps) {
    struct fi_info *hints = fi_allocinfo();
    THAT(hints);
    hints->caps = caps;
    hints->mode = FI_CONTEXT;
    hints->ep_attr->type = FI_EP_MSG;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_PROV_KEY | FI_MR_ALLOCATED | FI_MR_VIRT_ADDR;
    hints->fabric_attr->prov_name = strdup("zerolane");
    return hints;
}

/* The next event, which is one of `kind`. */
static inline ssize_t event(struct pair *pair, uint32_t kind, void *entry, size_t length) {
    uint32_t got = 99;
    ssize_t size = fi_eq_sread(pair->eq, &got, entry, length, 20000, 0);
    if (size == -FI_EAVAIL) {
        struct fi_eq_err_entry failure = {0};
        EXPECT(sizeof failure, fi_eq_readerr(pair->eq, &failure, 0));
        fprintf(stderr, "event queue: %s: %s\n", fi_strerror(failure.err),
                fi_eq_strerror(pair->eq, failure.prov_errno, failure.err_data, NULL, 0));
        exit(1);
    }
    THAT(size >= (ssize_t)sizeof(struct fi_eq_cm_entry));
    EXPECT(kind, got);
    return size;
}

static inline struct fid_cq *queue(struct pair *pair, const struct how *how) {
    struct fi_cq_attr attr = {.format = how->format, .wait_obj = how->wait};
    struct fid_cq *cq;
    EXPECT(0, fi_cq_open(pair->domain, &attr, &cq, NULL));
    return cq;
}

static inline struct end endpoint(struct pair *pair, struct fi_info *info, const struct how *how) {
    struct end end = {0};
    if (how->srx)
        info->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
    EXPECT(0, fi_endpoint(pair->domain, info, &end.ep, &end));
    end.tx = queue(pair, how);
    end.rx = queue(pair, how);
    EXPECT(0, fi_ep_bind(end.ep, &pair->eq->fid, 0));
    EXPECT(0, fi_ep_bind(end.ep, &end.tx->fid, FI_TRANSMIT | how->flags));
    EXPECT(0, fi_ep_bind(end.ep, &end.rx->fid, FI_RECV | how->flags));
    if (how->counted) {
        struct fi_cntr_attr attr = {.wait_obj = FI_WAIT_UNSPEC};
        EXPECT(0, fi_cntr_open(pair->domain, &attr, &end.counter, NULL));
        EXPECT(0, fi_ep_bind(end.ep, &end.counter->fid, FI_SEND | FI_RECV | FI_READ | FI_WRITE));
    }
    if (how->srx)
        EXPECT(0, fi_ep_bind(end.ep, &how->srx->fid, 0));
    EXPECT(0, fi_enable(end.ep));
    return end;
}

static inline void close_end(struct end *end) {
    EXPECT(0, fi_close(&end->ep->fid));
    EXPECT(0, fi_close(&end->tx->fid));
    EXPECT(0, fi_close(&end->rx->fid));
    if (end->counter)
        EXPECT(0, fi_close(&end->counter->fid));
}

/* A fabric that listens on the loopback. */
static inline void listen_on(struct pair *pair) {
    struct fi_info *hints = hints_for(FI_MSG | FI_RMA | FI_ATOMIC);
    memset(pair, 0, sizeof *pair);
    EXPECT(0, fi_getinfo(VERSION, "127.0.0.1", "0", FI_SOURCE, hints, &pair->info));
    fi_freeinfo(hints);
    EXPECT(0, fi_fabric(pair->info->fabric_attr, &pair->fabric, NULL));
    EXPECT(0, fi_domain(pair->fabric, pair->info, &pair->domain, NULL));
    struct fi_eq_attr attr = {.wait_obj = FI_WAIT_FD, .flags = FI_WRITE};
    EXPECT(0, fi_eq_open(pair->fabric, &attr, &pair->eq, NULL));
    EXPECT(0, fi_passive_ep(pair->fabric, pair->info, &pair->pep, NULL));
    EXPECT(0, fi_pep_bind(pair->pep, &pair->eq->fid, 0));
    EXPECT(0, fi_listen(pair->pep));
    size_t length = sizeof pair->address;
    EXPECT(0, fi_getname(&pair->pep->fid, &pair->address, &length));
}

static inline void connect_both(struct pair *pair, const struct how *how) {
    struct how of_client = *how;
    of_client.srx = NULL;
    pair->client = endpoint(pair, pair->info, &of_client);
    EXPECT(0, fi_connect(pair->client.ep, &pair->address, "ask", 4));
    struct {
        struct fi_eq_cm_entry entry;
        char data[64];
    } asked, connected;
    EXPECT(sizeof(struct fi_eq_cm_entry) + 4, event(pair, FI_CONNREQ, &asked, sizeof asked));
    THAT(asked.entry.fid == &pair->pep->fid);
    THAT(memcmp(asked.data, "ask", 4) == 0);
    pair->server = endpoint(pair, asked.entry.info, how);
    fi_freeinfo(asked.entry.info);
    EXPECT(0, fi_accept(pair->server.ep, "yes!", 5));
    int seen = 0;
    while (seen != 3) {
        ssize_t size = event(pair, FI_CONNECTED, &connected, sizeof connected);
        if (connected.entry.fid == &pair->client.ep->fid) {
            EXPECT(sizeof(struct fi_eq_cm_entry) + 5, size);
            THAT(memcmp(connected.data, "yes!", 5) == 0);
            seen |= 1;
        } else {
            THAT(connected.entry.fid == &pair->server.ep->fid);
            seen |= 2;
        }
    }
}

static inline void close_pair(struct pair *pair) {
    if (pair->client.ep)
        close_end(&pair->client);
    if (pair->server.ep)
        close_end(&pair->server);
    EXPECT(0, fi_close(&pair->pep->fid));
    EXPECT(0, fi_close(&pair->eq->fid));
    EXPECT(0, fi_close(&pair->domain->fid));
    EXPECT(0, fi_close(&pair->fabric->fid));
    fi_freeinfo(pair->info);
}

/* The next completion of a queue, while all queues of the pair progress. */
static inline struct fi_cq_tagged_entry done(struct fid_cq *cq) {
    struct fi_cq_tagged_entry entry = {0};
    time_t started = time(NULL);
    for (;;) {
        ssize_t got = fi_cq_read(cq, &entry, 1);
        if (got == 1)
            return entry;
        if (got == -FI_EAVAIL) {
            struct fi_cq_err_entry failure = {0};
            EXPECT(1, fi_cq_readerr(cq, &failure, 0));
            fprintf(stderr, "completion: %s: %s\n", fi_strerror(failure.err),
                    fi_cq_strerror(cq, failure.prov_errno, failure.err_data, NULL, 0));
            exit(1);
        }
        EXPECT(-FI_EAGAIN, got);
        THAT(time(NULL) - started < 20);
    }
}

/* The next failure of a queue. */
static inline struct fi_cq_err_entry failed(struct fid_cq *cq) {
    struct fi_cq_tagged_entry entry;
    struct fi_cq_err_entry failure = {0};
    time_t started = time(NULL);
    for (;;) {
        ssize_t got = fi_cq_read(cq, &entry, 1);
        if (got == -FI_EAVAIL) {
            EXPECT(1, fi_cq_readerr(cq, &failure, 0));
            return failure;
        }
        EXPECT(-FI_EAGAIN, got);
        THAT(time(NULL) - started < 20);
    }
}

#endif
