/* Concurrency Kit's locks are inline functions: these can be called. */
#include <ck_spinlock.h>

void holdfast_ck_fas_lock(ck_spinlock_fas_t *lock) { ck_spinlock_fas_lock(lock); }
void holdfast_ck_fas_unlock(ck_spinlock_fas_t *lock) { ck_spinlock_fas_unlock(lock); }
unsigned char holdfast_ck_fas_trylock(ck_spinlock_fas_t *lock) { return ck_spinlock_fas_trylock(lock); }
unsigned char holdfast_ck_fas_locked(ck_spinlock_fas_t *lock) { return ck_spinlock_fas_locked(lock); }
_Static_assert(sizeof(ck_spinlock_fas_t) == 4, "the word that Rust passes");

void holdfast_ck_ticket_lock(ck_spinlock_ticket_t *lock) { ck_spinlock_ticket_lock(lock); }
void holdfast_ck_ticket_unlock(ck_spinlock_ticket_t *lock) { ck_spinlock_ticket_unlock(lock); }
unsigned char holdfast_ck_ticket_trylock(ck_spinlock_ticket_t *lock) { return ck_spinlock_ticket_trylock(lock); }
unsigned char holdfast_ck_ticket_locked(ck_spinlock_ticket_t *lock) { return ck_spinlock_ticket_locked(lock); }
_Static_assert(sizeof(ck_spinlock_ticket_t) <= 8, "the words that Rust passes");
