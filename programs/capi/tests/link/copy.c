/* One of several shared libraries, each with a copy of the static library whose symbols it hides. */
#include <holdfast.h>

#define USE(name, type) \
    __attribute__((visibility("default"))) void use_##name(type *it) { holdfast_##name(it); }

USE(lock_lock, holdfast_lock_t)
USE(lock_unlock, holdfast_lock_t)
USE(rwlock_rdlock, holdfast_rwlock_t)
USE(rwlock_rdunlock, holdfast_rwlock_t)
USE(rwlock_wrlock, holdfast_rwlock_t)
USE(rwlock_wrunlock, holdfast_rwlock_t)
USE(cond_broadcast, holdfast_cond_t)

__attribute__((visibility("default"))) void use_cond_wait(holdfast_cond_t *cond, holdfast_lock_t *lock)
{
    holdfast_cond_wait(cond, lock);
}
