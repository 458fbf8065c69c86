/* A thread in the process of a VMM that is busy for 2 ms and sleeps for 3 ms, on CPU 0: LD_PRELOAD=io.so. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <time.h>

static void *io(void *unused)
{
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    sched_setaffinity(0, sizeof first, &first);
    pthread_setname_np(pthread_self(), "io");
    for (;;) {
        struct timespec begin, now, pause = {0, 3000000};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
        do
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        while ((now.tv_sec - begin.tv_sec) * 1000000000L + now.tv_nsec - begin.tv_nsec < 2000000);
        nanosleep(&pause, NULL);
    }
    return unused;
}

__attribute__((constructor)) static void start(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, io, NULL);
}
