/*
 * A Holdfast lock for C programs: mutual exclusion between the threads of one process, in four bytes.
 *
 * The lock is the hybrid queued lock: waiting threads queue and sleep in a futex. While the head of the queue sleeps,
 * running threads may take the lock ahead of it, for a bounded time (about 1 ms). Of the Holdfast locks it is the
 * one that stays fast when threads outnumber CPUs. The library has no other kind: four bytes leave no room to record
 * which kind a lock is.
 *
 * Link with the flags of `pkg-config --libs holdfast`, or with libholdfast.a and -lpthread -ldl -lm. Linux only.
 *
 *   - A zeroed lock is unlocked. It needs no destructor: the memory of an unlocked lock may be reused or freed at once.
 *     The next holder may free it, too, even if the previous holder has not yet returned from holdfast_lock_unlock.
 *   - A lock must not be copied while it is held or waited for. It does not work between processes.
 *   - A lock is not recursive: a thread that locks a lock it already holds waits forever.
 *   - Only the thread that locked a lock may unlock it.
 *   - The functions are not async-signal-safe: do not call them in signal handlers.
 *   - No function is a cancellation point: a thread that is cancelled (pthread_cancel) does not end in one.
 *   - After fork, the child may use every lock that no other thread of the parent held. The forking thread still holds
 *     its locks in the child and may unlock them, for example in a handler of pthread_atfork. The threads that waited
 *     do not exist in the child, and are not in its queues. (Not so after a bare clone, or _Fork.)
 *   - A process may refuse itself membarrier at any time (seccomp). Then an unlock costs one more atomic exchange, and
 *     the head of a queue wakes every 5 ms. A process needs futex, as for a pthread mutex.
 *   - A thread takes one of 16320 numbers the first time it has to wait, and returns it when it ends. While all numbers
 *     are in use further threads wait without one: they spin and yield the CPU, and are served in no order.
 *
 * If the library detects misuse or runs out of memory, it prints a message on standard error and calls abort().
 * It does so if a lock is unlocked that is not held, and if there is no memory for the queues (0.6 MB). It cannot
 * detect all misuse: unlocking a lock that another thread holds breaks mutual exclusion.
 * No function throws, or unwinds into the caller.
 */
#ifndef HOLDFAST_H
#define HOLDFAST_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A lock. Only the library reads or writes its content. */
typedef struct holdfast_lock {
    uint32_t holdfast_word;
} holdfast_lock_t;

/* Initializes an unlocked lock: holdfast_lock_t lock = HOLDFAST_LOCK_INIT; */
#define HOLDFAST_LOCK_INIT { 0 }

/* Initializes the memory at lock as an unlocked lock. No thread may be using the memory as a lock. */
void holdfast_lock_init(holdfast_lock_t *lock);

/* Waits until the calling thread holds the lock. Without contention: one atomic exchange, no system call. */
void holdfast_lock_lock(holdfast_lock_t *lock);

/* Takes the lock if no thread holds it or waits for it. Returns true if the lock was taken. Never waits. */
bool holdfast_lock_trylock(holdfast_lock_t *lock);

/* Releases the lock, which the calling thread must hold. Wakes the head of the queue if it sleeps. */
void holdfast_lock_unlock(holdfast_lock_t *lock);

#ifdef __cplusplus
}
static_assert(sizeof(holdfast_lock_t) == 4, "a lock takes four bytes");
#else
_Static_assert(sizeof(holdfast_lock_t) == 4, "a lock takes four bytes");
#endif

#endif
