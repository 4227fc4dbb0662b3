"""What the programs share: where the brokers are, what must be read, and threads whose failure is the program's."""
import os
import sys
import threading
import time

BOOTSTRAP, NAME = os.environ["BOOTSTRAP"], os.environ["NAME"]
KEYS, PARTITIONS = 60, 6


class Seen:
    """What was read: the values of a key are 0, 1, 2, ..., so the next one expected is all that has to be known to notice any record that is missing, twice or out
    of order."""

    def __init__(self):
        self.lock, self.next, self.count = threading.Lock(), [0] * KEYS, 0

    def take(self, key, value):
        k, v = int(key), int(value)
        with self.lock:
            if v != self.next[k]:
                raise AssertionError(f"key {k}: read {v}, want {self.next[k]}")
            self.next[k] += 1
            self.count += 1


failures = []


class Worker(threading.Thread):
    """A thread; what it raises ends the program."""

    def __init__(self, work):
        super().__init__(daemon=True)
        self.work, self.leaving = work, False
        self.start()

    def run(self):
        try:
            self.work(self)
        except BaseException as e:  # whatever it is, it must not stay in the thread
            failures.append(e)

    def leave(self):
        self.leaving = True
        self.join(60)
        if self.is_alive():
            raise AssertionError("a thread does not end")
        check()


def check():
    if failures:
        raise failures[0]


def wait(what, condition, within=240):
    deadline = time.monotonic() + within
    while not condition():
        check()
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within} s: {what}")
        time.sleep(0.02)


def play_group(start_member, start_writer, seen, sent):
    """Members of one group read a topic while it is written; one comes late, one leaves. A member has the set `owned`, a writer and a member leave()."""
    writer = start_writer()
    members = [start_member(), start_member()]
    wait("two members with partitions", lambda: all(m.owned for m in members))
    members.append(start_member())
    wait("a third with partitions", lambda: all(m.owned for m in members))
    more(seen, 1000)
    members.pop(0).leave()
    wait("all partitions with those who stay", lambda: sum(len(m.owned) for m in members) == PARTITIONS)
    more(seen, 1000)
    writer.leave()
    wait("all records read", lambda: seen.count == sent())
    for m in members:
        m.leave()


def more(seen, n):
    until = seen.count + n
    wait(f"{n} more records", lambda: seen.count >= until)


def main(scenarios):
    """Runs the scenario that the command line names; its last line says what it has seen."""
    said = scenarios[sys.argv[1]]()
    check()
    print(said, flush=True)
    os._exit(0)  # clients' own threads are not waited for
