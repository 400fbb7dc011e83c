/* Tests that a program's signal handler runs on its own threads only. Run by tests/install.rs. */
#include "expect.h"
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

static pthread_t own;
static volatile sig_atomic_t handled, elsewhere;

static void handle(int signal)
{
    (void)signal;
    handled++;
    elsewhere += !pthread_equal(own, pthread_self());
}

int main(void)
{
    const struct sigaction action = {.sa_handler = handle};
    const struct timespec soon = {.tv_sec = 10}, moment = {.tv_nsec = 1000000};
    zl_endpoint *endpoint;
    sigset_t user;

    own = pthread_self();
    EXPECT(sigaction(SIGUSR1, &action, NULL) == 0);
    /* Its thread starts while this one takes the signal. */
    EXPECT(zl_endpoint_bind("127.0.0.1:0", NULL, &endpoint) == ZL_OK);
    sigemptyset(&user);
    sigaddset(&user, SIGUSR1);
    EXPECT(pthread_sigmask(SIG_BLOCK, &user, NULL) == 0);
    for (int i = 0; i < 20; i++) {
        EXPECT(kill(getpid(), SIGUSR1) == 0);
        /* In which another thread would take it. */
        nanosleep(&moment, NULL);
        EXPECT(sigtimedwait(&user, NULL, &soon) == SIGUSR1);
    }
    EXPECT(handled == 0);
    EXPECT(pthread_sigmask(SIG_UNBLOCK, &user, NULL) == 0);
    EXPECT(kill(getpid(), SIGUSR1) == 0);
    EXPECT(handled == 1 && elsewhere == 0);
    zl_endpoint_free(endpoint);
    return 0;
}
