/*
 * The Holdfast locks for C++17: classes over holdfast.h, which says what holds for all of them. Header only; link as C.
 *
 *     holdfast::mutex m;                             // 4 bytes, TimedLockable
 *     std::scoped_lock hold(m);
 *
 *   - holdfast::mutex in place of std::mutex and std::timed_mutex.
 *   - holdfast::shared_mutex in place of std::shared_mutex and std::shared_timed_mutex.
 *   - holdfast::condition_variable in place of std::condition_variable, for std::unique_lock<holdfast::mutex>.
 *     std::condition_variable_any works with all of these locks, too.
 *
 * All have constexpr constructors, so that variables of static storage need no initialization at run time. Nothing
 * throws, except what the caller's predicates and clocks throw.
 */
#ifndef HOLDFAST_HPP
#define HOLDFAST_HPP

#include <holdfast.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <ratio>
#include <utility>

namespace holdfast {

namespace detail {

/* The clock of deadlines. On Linux the steady clocks of all standard libraries are CLOCK_MONOTONIC. */
using clock = std::chrono::steady_clock;

/* Returns the moment after a duration, or the last moment if that is too far away. Never earlier than asked for. */
template <class Rep, class Period>
clock::time_point after(const std::chrono::duration<Rep, Period> &duration)
{
    using seconds = std::chrono::duration<long double>;
    const clock::time_point now = clock::now();
    if (duration <= duration.zero())
        return now;
    if (seconds(duration) >= seconds(clock::time_point::max() - now))
        return clock::time_point::max();
    return now + std::chrono::ceil<clock::duration>(duration);
}

inline timespec to_timespec(clock::time_point moment)
{
    using namespace std::chrono;
    const nanoseconds since = moment.time_since_epoch();
    if (since < nanoseconds::zero())
        return timespec{0, 0};
    const seconds whole = duration_cast<seconds>(since);
    timespec time{};
    time.tv_sec = static_cast<decltype(time.tv_sec)>(whole.count());
    time.tv_nsec = static_cast<decltype(time.tv_nsec)>((since - whole).count());
    return time;
}

/*
 * Waits until a moment of any clock. `wait` waits until a moment of our clock, and returns whether it has succeeded. If
 * the other clock is slower than ours, or set back, `wait` is called again.
 */
template <class Wait>
bool wait_until(clock::time_point moment, Wait wait)
{
    const timespec time = to_timespec(moment);
    return wait(&time);
}

template <class Clock, class Duration, class Wait>
bool wait_until(const std::chrono::time_point<Clock, Duration> &moment, Wait wait)
{
    do {
        const timespec time = to_timespec(after(moment - Clock::now()));
        if (wait(&time))
            return true;
    } while (Clock::now() < moment);
    return false;
}

} // namespace detail

/* Mutual exclusion. Not recursive. */
class mutex {
public:
    using native_handle_type = holdfast_lock_t *;

    constexpr mutex() noexcept = default;
    mutex(const mutex &) = delete;
    mutex &operator=(const mutex &) = delete;

    void lock() noexcept { holdfast_lock_lock(&lock_); }
    bool try_lock() noexcept { return holdfast_lock_trylock(&lock_); }
    void unlock() noexcept { holdfast_lock_unlock(&lock_); }

    template <class Rep, class Period>
    bool try_lock_for(const std::chrono::duration<Rep, Period> &duration)
    {
        return try_lock() || try_lock_until(detail::after(duration));
    }

    template <class Clock, class Duration>
    bool try_lock_until(const std::chrono::time_point<Clock, Duration> &moment)
    {
        return detail::wait_until(moment, [&](const timespec *time) { return holdfast_lock_timedlock(&lock_, time); });
    }

    native_handle_type native_handle() noexcept { return &lock_; }

private:
    holdfast_lock_t lock_ = HOLDFAST_LOCK_INIT;
};

/* One writer or many readers. Fair: both queue in order of arrival. */
class shared_mutex {
public:
    using native_handle_type = holdfast_rwlock_t *;

    constexpr shared_mutex() noexcept = default;
    shared_mutex(const shared_mutex &) = delete;
    shared_mutex &operator=(const shared_mutex &) = delete;

    void lock() noexcept { holdfast_rwlock_wrlock(&lock_); }
    bool try_lock() noexcept { return holdfast_rwlock_trywrlock(&lock_); }
    void unlock() noexcept { holdfast_rwlock_wrunlock(&lock_); }

    template <class Rep, class Period>
    bool try_lock_for(const std::chrono::duration<Rep, Period> &duration)
    {
        return try_lock() || try_lock_until(detail::after(duration));
    }

    template <class Clock, class Duration>
    bool try_lock_until(const std::chrono::time_point<Clock, Duration> &moment)
    {
        return detail::wait_until(
            moment, [&](const timespec *time) { return holdfast_rwlock_timedwrlock(&lock_, time); });
    }

    void lock_shared() noexcept { holdfast_rwlock_rdlock(&lock_); }
    bool try_lock_shared() noexcept { return holdfast_rwlock_tryrdlock(&lock_); }
    void unlock_shared() noexcept { holdfast_rwlock_rdunlock(&lock_); }

    template <class Rep, class Period>
    bool try_lock_shared_for(const std::chrono::duration<Rep, Period> &duration)
    {
        return try_lock_shared() || try_lock_shared_until(detail::after(duration));
    }

    template <class Clock, class Duration>
    bool try_lock_shared_until(const std::chrono::time_point<Clock, Duration> &moment)
    {
        return detail::wait_until(
            moment, [&](const timespec *time) { return holdfast_rwlock_timedrdlock(&lock_, time); });
    }

    /* Makes the writer, which the calling thread must be, a reader, to be released by unlock_shared. */
    void downgrade() noexcept { holdfast_rwlock_downgrade(&lock_); }

    native_handle_type native_handle() noexcept { return &lock_; }

private:
    holdfast_rwlock_t lock_ = HOLDFAST_RWLOCK_INIT;
};

/* As std::condition_variable. All threads that wait at the same time must do so with the same mutex. */
class condition_variable {
public:
    using native_handle_type = holdfast_cond_t *;

    constexpr condition_variable() noexcept = default;
    /* All waiting threads must have been notified. They may not have returned yet. */
    ~condition_variable() { holdfast_cond_destroy(&cond_); }
    condition_variable(const condition_variable &) = delete;
    condition_variable &operator=(const condition_variable &) = delete;

    void notify_one() noexcept { holdfast_cond_signal(&cond_); }
    void notify_all() noexcept { holdfast_cond_broadcast(&cond_); }

    void wait(std::unique_lock<mutex> &lock) noexcept
    {
        holdfast_cond_wait(&cond_, lock.mutex()->native_handle());
    }

    template <class Predicate>
    void wait(std::unique_lock<mutex> &lock, Predicate predicate)
    {
        while (!predicate())
            wait(lock);
    }

    template <class Clock, class Duration>
    std::cv_status wait_until(std::unique_lock<mutex> &lock, const std::chrono::time_point<Clock, Duration> &moment)
    {
        const auto wait = [&](const timespec *time) {
            return holdfast_cond_timedwait(&cond_, lock.mutex()->native_handle(), time);
        };
        return detail::wait_until(moment, wait) ? std::cv_status::no_timeout : std::cv_status::timeout;
    }

    template <class Clock, class Duration, class Predicate>
    bool wait_until(
        std::unique_lock<mutex> &lock, const std::chrono::time_point<Clock, Duration> &moment, Predicate predicate)
    {
        while (!predicate())
            if (wait_until(lock, moment) == std::cv_status::timeout)
                return predicate();
        return true;
    }

    template <class Rep, class Period>
    std::cv_status wait_for(std::unique_lock<mutex> &lock, const std::chrono::duration<Rep, Period> &duration)
    {
        return wait_until(lock, detail::after(duration));
    }

    template <class Rep, class Period, class Predicate>
    bool wait_for(
        std::unique_lock<mutex> &lock, const std::chrono::duration<Rep, Period> &duration, Predicate predicate)
    {
        return wait_until(lock, detail::after(duration), std::move(predicate));
    }

    native_handle_type native_handle() noexcept { return &cond_; }

private:
    holdfast_cond_t cond_ = HOLDFAST_COND_INIT;
};

} // namespace holdfast

#endif
