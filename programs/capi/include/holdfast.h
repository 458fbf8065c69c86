/*
 * The Holdfast locks for C programs: a lock, a reader-writer lock and a condition variable for the threads of one
 * process. For C++ there are classes in holdfast.hpp.
 *
 * The lock is the hybrid queued lock: waiting threads queue and sleep in a futex. While the head of the queue sleeps,
 * running threads may take the lock ahead of it, for a bounded time (about 1 ms). Of the Holdfast locks it is the
 * one that stays fast when threads outnumber CPUs. The library has no other kind: four bytes leave no room to record
 * which kind a lock is.
 *
 * Link with the flags of `pkg-config --libs holdfast`, or with libholdfast.a and -lpthread -ldl -lm. Linux only.
 *
 *   - Zeroed memory is an unlocked lock, or a condition variable for which no thread waits. A lock needs no destructor:
 *     the memory of an unlocked lock may be reused or freed at once. The next holder may free it, too, even if the
 *     previous holder has not yet returned from the function that released it.
 *   - A lock must not be copied while it is held or waited for. It does not work between processes.
 *   - A lock is not recursive: a thread that locks a lock it already holds waits forever. So does a thread that reads
 *     and locks the same lock again while a writer waits.
 *   - Only the thread that locked a lock may unlock it.
 *   - The functions are not async-signal-safe: do not call them in signal handlers.
 *   - No function is a cancellation point: a thread that is cancelled (pthread_cancel) does not end in one, not even in
 *     holdfast_cond_wait. No function changes errno.
 *   - After fork, the child may use every lock that no other thread of the parent held. The forking thread still holds
 *     its locks in the child and may unlock them, for example in a handler of pthread_atfork. The threads that waited
 *     do not exist in the child, and are not in its queues. (Not so after a bare clone, or _Fork.)
 *   - A deadline is a time of CLOCK_MONOTONIC. One that is not normalized has passed. A thread with a deadline does not
 *     queue for a lock: it tries again and again, and sleeps for at most 1 ms in between. So it is served in no order.
 *   - A process may refuse itself membarrier at any time (seccomp). Then an unlock costs one more atomic exchange, and
 *     the head of a queue wakes every 5 ms. A process needs futex, as for a pthread mutex.
 *   - A thread takes one of 16320 numbers the first time it has to wait for a lock, and returns it when it ends. While
 *     all numbers are in use further threads wait without one: they spin and yield the CPU, and are served in no order.
 *
 * If the library detects misuse, it prints a message with the function and the lock's address on standard error and
 * calls abort(). It does so if a lock is unlocked that is not held, and if more than 32767 threads read. It cannot
 * detect all misuse: unlocking a lock that another thread holds breaks mutual exclusion. The library that `install
 * --check` makes is for debugging, and slower. It also calls abort() if a thread takes a lock that it holds, or
 * releases one that it does not hold, and reports locks taken in orders that may deadlock. No function throws, or
 * unwinds into the caller.
 *
 * No function allocates memory, loads a library or opens a file: a lock may guard an allocator.
 *
 * A process may have several copies of this library: in plugins with a static library each, with hidden symbols, or
 * loaded by RTLD_LOCAL. Copies of the same version use the queues of the copy that was loaded first, so they may share
 * locks. (In the others each unlock is an atomic exchange.) A copy of another version prints a message and calls
 * abort() when it is loaded: link both users with the shared library, or with the same version. A copy that is loaded
 * by dlmopen is not found, and must not share locks.
 */
#ifndef HOLDFAST_H
#define HOLDFAST_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A lock. Only the library reads or writes its content, and that of the other types. */
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

/* Waits for the lock until the deadline at the latest. Returns true if the lock was taken. */
bool holdfast_lock_timedlock(holdfast_lock_t *lock, const struct timespec *deadline);

/* Releases the lock, which the calling thread must hold. Wakes the head of the queue if it sleeps. */
void holdfast_lock_unlock(holdfast_lock_t *lock);

/* A reader-writer lock: one writer or any number of readers hold it. Fair: both queue in order of arrival. */
typedef struct holdfast_rwlock {
    uint32_t holdfast_words[2];
} holdfast_rwlock_t;

#define HOLDFAST_RWLOCK_INIT { { 0, 0 } }

/* As for a lock. */
void holdfast_rwlock_init(holdfast_rwlock_t *lock);

/* Wait until the calling thread holds the lock, as a reader or as the writer. */
void holdfast_rwlock_rdlock(holdfast_rwlock_t *lock);
void holdfast_rwlock_wrlock(holdfast_rwlock_t *lock);

/* Take the lock if that needs no waiting. Return true if the lock was taken. */
bool holdfast_rwlock_tryrdlock(holdfast_rwlock_t *lock);
bool holdfast_rwlock_trywrlock(holdfast_rwlock_t *lock);

/* Wait for the lock until the deadline at the latest. Return true if the lock was taken. */
bool holdfast_rwlock_timedrdlock(holdfast_rwlock_t *lock, const struct timespec *deadline);
bool holdfast_rwlock_timedwrlock(holdfast_rwlock_t *lock, const struct timespec *deadline);

/* Release the lock, which the calling thread must hold as a reader, or as the writer. */
void holdfast_rwlock_rdunlock(holdfast_rwlock_t *lock);
void holdfast_rwlock_wrunlock(holdfast_rwlock_t *lock);

/* Makes the writer, which the calling thread must be, a reader: no other writer gets the lock in between. */
void holdfast_rwlock_downgrade(holdfast_rwlock_t *lock);

/* A condition variable. All threads that wait at the same time must do so with the same lock. */
typedef struct holdfast_cond {
    uint32_t holdfast_words[2];
    uint64_t holdfast_lock;
} holdfast_cond_t;

#define HOLDFAST_COND_INIT { { 0, 0 }, 0 }

/* Initializes the memory at cond as a condition variable for which no thread waits. */
void holdfast_cond_init(holdfast_cond_t *cond);

/*
 * Waits until no thread accesses the condition variable any more: then its memory may be reused or freed. Needed only
 * if threads that were notified may not have returned yet. The caller may hold their lock. All threads that wait must
 * have been notified.
 */
void holdfast_cond_destroy(holdfast_cond_t *cond);

/*
 * Releases the lock, which the calling thread must hold, waits for a notification, and takes the lock again. It may
 * return without a notification: look at the condition again.
 */
void holdfast_cond_wait(holdfast_cond_t *cond, holdfast_lock_t *lock);

/* The same until the deadline at the latest, and as long as it takes to get the lock. Returns false if time was up. */
bool holdfast_cond_timedwait(holdfast_cond_t *cond, holdfast_lock_t *lock, const struct timespec *deadline);

/* Notifies one waiting thread, if there is one. The caller need not hold the lock. */
void holdfast_cond_signal(holdfast_cond_t *cond);

/*
 * Notifies all waiting threads. 64 for each CPU wake now. Those of a larger crowd sleep on: each thread wakes the next
 * one when it has got the lock.
 */
void holdfast_cond_broadcast(holdfast_cond_t *cond);

#ifdef __cplusplus
}
static_assert(sizeof(holdfast_lock_t) == 4, "a lock takes four bytes");
static_assert(sizeof(holdfast_rwlock_t) == 8, "a reader-writer lock takes eight bytes");
static_assert(sizeof(holdfast_cond_t) == 16, "a condition variable takes sixteen bytes");
#else
_Static_assert(sizeof(holdfast_lock_t) == 4, "a lock takes four bytes");
_Static_assert(sizeof(holdfast_rwlock_t) == 8, "a reader-writer lock takes eight bytes");
_Static_assert(sizeof(holdfast_cond_t) == 16, "a condition variable takes sixteen bytes");
#endif

#endif
