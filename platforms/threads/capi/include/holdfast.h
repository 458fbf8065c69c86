/*
 * A Holdfast lock for C programs: mutual exclusion between the threads of one process, in four bytes.
 *
 * The lock is the queued/unfair hybrid: while the head of its queue sleeps, running threads may take the lock past it, for a
 * bounded time; who waits for long sleeps in a futex. It is the one kind that stays fast with more threads than CPUs, and the
 * only kind here: four bytes have no room to remember another.
 *
 * Link with libholdfast.a, and -lpthread -ldl -lm. Linux.
 *
 *   - All bytes zero is a free lock. It needs no end: memory that holds a free lock may be reused or freed at once, also by
 *     whoever takes the lock next while the thread that has released it is still on its way out of holdfast_lock_unlock.
 *   - A lock may not be copied while it is held or waited for. It does not work between processes.
 *   - Not recursive: who holds a lock and locks it again waits for ever.
 *   - The thread that has locked unlocks.
 *   - Not from signal handlers.
 *   - After fork, the child may use the locks that no other thread of its parent held.
 *   - Up to 4096 threads can be waiting, or have waited and not ended, at the same time.
 *
 * Misuse that is noticed (unlocking a lock that is free, a thread too many, no memory for the queue) ends the process, by
 * abort(), with a message on standard error. Nothing is ever thrown or unwound into the caller. Misuse that is not noticed, such
 * as unlocking what another thread holds, ends the exclusion of that lock.
 */
#ifndef HOLDFAST_H
#define HOLDFAST_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A lock. Its content is the library's business. */
typedef struct holdfast_lock {
    uint32_t holdfast_word;
} holdfast_lock_t;

/* A free lock: holdfast_lock_t lock = HOLDFAST_LOCK_INIT; */
#define HOLDFAST_LOCK_INIT { 0 }

/* Makes a free lock of memory that is not one. Nobody may be using it. */
void holdfast_lock_init(holdfast_lock_t *lock);

/* Waits until the calling thread holds the lock. */
void holdfast_lock_lock(holdfast_lock_t *lock);

/* Takes the lock if nobody holds it or waits for it; says whether it has. Never waits. */
bool holdfast_lock_trylock(holdfast_lock_t *lock);

/* Releases the lock, which the calling thread must hold. */
void holdfast_lock_unlock(holdfast_lock_t *lock);

#ifdef __cplusplus
}
static_assert(sizeof(holdfast_lock_t) == 4, "a lock takes four bytes");
#else
_Static_assert(sizeof(holdfast_lock_t) == 4, "a lock takes four bytes");
#endif

#endif
