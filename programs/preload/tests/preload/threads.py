"""Threads, conditions, queues, pools, and processes that fork: what an interpreter does with pthread mutexes."""

import concurrent.futures
import multiprocessing
import queue
import subprocess
import sys
import threading
import time


def count(lock, box):
    for _ in range(2000):
        with lock:
            box[0] += 1


def square(value):
    return value * value


def main():
    box, lock = [0], threading.Lock()
    threads = [threading.Thread(target=count, args=(lock, box)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert box == [32000], box

    jobs, done = queue.Queue(4), queue.Queue()

    def work():
        while (job := jobs.get()) is not None:
            done.put(job + 1)

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for job in range(1000):
        jobs.put(job)
    for _ in workers:
        jobs.put(None)
    for worker in workers:
        worker.join()
    assert sum(done.get() for _ in range(1000)) == 1000 * 1001 // 2

    condition = threading.Condition()
    with condition:
        start = time.monotonic()
        assert not condition.wait(0.02)
        assert time.monotonic() - start >= 0.02

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(square, range(200))) == 2646700
        # Processes that fork while threads of the pool wait.
        with multiprocessing.get_context("fork").Pool(3) as processes:
            assert sum(processes.map(square, range(200))) == 2646700
        said = subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True, check=True)
        assert said.stdout == "42\n", said
    print("all kept")


if __name__ == "__main__":
    main()
