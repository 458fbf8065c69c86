/*
 * Sleeps on a word, as a cancellation point: pthread_cond_wait is one. A thread that is cancelled leaves this function
 * by longjmp or by unwinding, and calls cancelled(context) first.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/*
 * Sleeps while the word holds the value, until woken or until the deadline of the clock, if there is one. Returns 0 if
 * woken, or an error number. Does not change errno.
 */
int holdfast_preload_sleep(uint32_t *word, uint32_t value, int realtime, const struct timespec *deadline,
                           void (*cancelled)(void *), void *context)
{
    int before, kept = errno;
    volatile int error = 0;
    int operation = FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG | (realtime ? FUTEX_CLOCK_REALTIME : 0);

    pthread_cleanup_push(cancelled, context);
    /* Ends the thread at once if it has been cancelled, here or during the system call. */
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before);
    if (syscall(SYS_futex, word, operation, value, deadline, NULL, FUTEX_BITSET_MATCH_ANY) != 0)
        error = errno;
    pthread_setcanceltype(before, NULL);
    pthread_cleanup_pop(0);
    errno = kept;
    return error;
}
