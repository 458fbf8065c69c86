// Abseil's classes: these functions can be called.
#include <absl/synchronization/mutex.h>

extern "C" {
void holdfast_absl_lock(absl::Mutex *mutex) { mutex->Lock(); }
void holdfast_absl_unlock(absl::Mutex *mutex) { mutex->Unlock(); }
unsigned char holdfast_absl_trylock(absl::Mutex *mutex) { return mutex->TryLock(); }
void holdfast_absl_reader_lock(absl::Mutex *mutex) { mutex->ReaderLock(); }
void holdfast_absl_reader_unlock(absl::Mutex *mutex) { mutex->ReaderUnlock(); }
unsigned char holdfast_absl_reader_trylock(absl::Mutex *mutex) { return mutex->ReaderTryLock(); }
void holdfast_absl_wait(absl::CondVar *condvar, absl::Mutex *mutex) { condvar->Wait(mutex); }
void holdfast_absl_notify_one(absl::CondVar *condvar) { condvar->Signal(); }
void holdfast_absl_notify_all(absl::CondVar *condvar) { condvar->SignalAll(); }
static_assert(sizeof(absl::Mutex) == 8 && sizeof(absl::CondVar) == 8, "the words that Rust passes");
}
