// Tests the classes of holdfast.hpp with the standard library's own locks and condition variables. Prints the condition
// that does not hold, and fails.
#include <holdfast.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <type_traits>
#include <vector>

#include <unistd.h>

#define CHECK(condition)                                                                                       \
    do {                                                                                                       \
        if (!(condition)) {                                                                                    \
            std::fprintf(stderr, "%s:%d: %s: not %s\n", __FILE__, __LINE__, __func__, #condition);             \
            std::exit(1);                                                                                      \
        }                                                                                                      \
    } while (0)

using namespace std::chrono_literals;

// Constant initialization: a variable that needs code at run time would not compile.
constexpr holdfast::mutex constant_mutex;
constexpr holdfast::shared_mutex constant_shared_mutex;
static_assert(sizeof constant_mutex == 4 && sizeof constant_shared_mutex == 8);
static_assert(std::is_trivially_destructible_v<holdfast::mutex>);
static_assert(!std::is_copy_constructible_v<holdfast::mutex> && !std::is_move_assignable_v<holdfast::shared_mutex>);

static holdfast::mutex mutex;
static holdfast::shared_mutex shared_mutex;
static holdfast::condition_variable changed;

template <class Body>
static void on_threads(int count, Body body)
{
    std::vector<std::thread> threads;
    for (int i = 0; i < count; i++)
        threads.emplace_back(body, i);
    for (std::thread &thread : threads)
        thread.join();
}

// A clock that is not the one of deadlines, and runs at half its speed.
struct slow_clock {
    using duration = std::chrono::milliseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<slow_clock>;
    static constexpr bool is_steady = true;
    static time_point now()
    {
        const auto since = std::chrono::steady_clock::now().time_since_epoch();
        return time_point(std::chrono::duration_cast<duration>(since) / 2);
    }
};

static void exclusion_by_every_guard()
{
    holdfast::mutex other;
    long count = 0;
    on_threads(4, [&](int thread) {
        for (int i = 0; i < 2000; i++) {
            if ((i + thread) % 3 == 0) {
                std::scoped_lock hold(mutex, other, shared_mutex);
                count++;
            } else if ((i + thread) % 3 == 1) {
                std::unique_lock hold(mutex, std::defer_lock);
                while (!hold.try_lock_for(1ms)) {
                }
                count++;
            } else {
                std::lock_guard hold(mutex);
                count++;
            }
        }
    });
    CHECK(count == 4 * 2000);
}

template <class Moment>
static void attempts_end(Moment moment)
{
    const auto start = Moment::clock::now();
    CHECK(!mutex.try_lock_until(moment) && Moment::clock::now() >= moment && start < moment);
}

static void deadlines_of_every_clock()
{
    std::lock_guard hold(mutex);
    std::shared_lock read(shared_mutex);
    std::thread([] {
        attempts_end(std::chrono::steady_clock::now() + 5ms);
        attempts_end(std::chrono::system_clock::now() + 5ms);
        attempts_end(slow_clock::now() + 5ms);
        CHECK(!mutex.try_lock() && !mutex.try_lock_for(-1h) && !mutex.try_lock_for(0.001s));
        CHECK(!mutex.try_lock_until(std::chrono::system_clock::time_point{}));
        CHECK(!shared_mutex.try_lock() && !shared_mutex.try_lock_for(2ms));
        CHECK(!shared_mutex.try_lock_until(std::chrono::steady_clock::now() + 2ms));
        CHECK(shared_mutex.try_lock_shared());
        shared_mutex.unlock_shared();
        std::shared_lock also(shared_mutex, 1h);
        CHECK(also.owns_lock());
    }).join();
}

static void times_far_away()
{
    CHECK(mutex.try_lock_for(std::chrono::hours::max()));
    mutex.unlock();
    CHECK(mutex.try_lock_until(std::chrono::steady_clock::time_point::max()));
    mutex.unlock();
    shared_mutex.lock();
    shared_mutex.downgrade();
    CHECK(shared_mutex.try_lock_shared_until(std::chrono::system_clock::now() + 1h));
    shared_mutex.unlock_shared();
    CHECK(!shared_mutex.try_lock());
    shared_mutex.unlock_shared();
}

// The threads take turns by a condition variable of either library.
template <class Condition, class Lock>
static void turns_by(Condition &condition, Lock &lock)
{
    enum { THREADS = 4, ROUNDS = 200 };
    int turn = 0;
    on_threads(THREADS, [&](int thread) {
        for (int i = 0; i < ROUNDS; i++) {
            std::unique_lock<Lock> hold(lock);
            condition.wait(hold, [&] { return turn % THREADS == thread; });
            turn++;
            condition.notify_all();
        }
    });
    CHECK(turn == THREADS * ROUNDS);
}

static void waits_with_deadlines()
{
    std::unique_lock hold(mutex);
    CHECK(!changed.wait_for(hold, 2ms, [] { return false; }));
    CHECK(!changed.wait_until(hold, std::chrono::system_clock::now() + 2ms, [] { return false; }));
    CHECK(changed.wait_until(hold, std::chrono::steady_clock::now() - 1s) == std::cv_status::timeout);
    CHECK(hold.owns_lock());
    bool done = false;
    std::thread setter([&] {
        std::lock_guard other(mutex);
        done = true;
        changed.notify_one();
    });
    CHECK(changed.wait_for(hold, 1h, [&] { return done; }));
    hold.unlock();
    setter.join();
}

// The last use of a condition variable is its notification: the waiters may still be on their way.
static void destroyed_after_notification()
{
    for (int round = 0; round < 100; round++) {
        auto condition = std::make_unique<holdfast::condition_variable>();
        bool done = false;
        int waiting = 0;
        std::vector<std::thread> threads;
        for (int i = 0; i < 6; i++)
            threads.emplace_back([&, raw = condition.get()] {
                std::unique_lock hold(mutex);
                waiting++;
                while (!done)
                    raw->wait(hold);
            });
        for (bool all = false; !all; std::this_thread::yield()) {
            std::lock_guard hold(mutex);
            all = waiting == 6;
        }
        {
            std::lock_guard hold(mutex);
            done = true;
            condition->notify_all();
            condition.reset();
        }
        for (std::thread &thread : threads)
            thread.join();
    }
}

int main()
{
    alarm(120);
    exclusion_by_every_guard();
    deadlines_of_every_clock();
    times_far_away();
    turns_by(changed, mutex);
    std::condition_variable_any any;
    turns_by(any, mutex);
    turns_by(any, shared_mutex);
    waits_with_deadlines();
    destroyed_after_notification();
    std::puts("all kept");
}
