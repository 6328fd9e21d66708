from __future__ import annotations

import os
import signal

from loadgen.frames import Final, Hello, Lost, Progress, Quit, Stop

from .stage import Locust, alive


def test_each_job_reaches_its_lane_and_every_word_goes_up() -> None:
    with Locust(lanes=3) as locust:
        pids = [hello.pid for hello in locust.hear(Hello, 3)]
        locust.play({"seconds": 0.1}, {"seconds": 0.2}, {"seconds": 0.3}, run=1)
        assert sorted(final.lane for final in locust.hear(Final, 3)) == [0, 1, 2]
        locust.play({"seconds": 0.1}, {"seconds": 0.1}, {"seconds": 0.1}, run=2)
        finals = locust.hear(Final, 3)
        assert {(final.run, final.lane, final.finished) for final in finals} == {
            (2, 0, True),
            (2, 1, True),
            (2, 2, True),
        }
        seconds = [frame for frame in locust.heard if isinstance(frame, Progress)]
        assert {(second.run, second.lane) for second in seconds} == {
            (run, lane) for run in (1, 2) for lane in (0, 1, 2)
        }
        assert seconds[0].failures == (("chat", "refused", "503", 1),)
        locust.say(Quit(exit_code=99))
        assert locust.ended()[0] == 99
        assert len(set(pids)) == 3
        assert not any(alive(pid) for pid in pids)


def test_a_stop_reaches_every_lane() -> None:
    with Locust(lanes=2) as locust:
        locust.hear(Hello, 2)
        locust.play({"seconds": 600}, {"seconds": 600, "drain_s": 0.3})
        locust.hear(Progress, 2)
        locust.say(Stop(why="enough"))
        assert [final.finished for final in locust.hear(Final, 2)] == [False, False]
        locust.say(Quit(exit_code=130))
        assert locust.ended()[0] == 130


def test_a_killed_generator_is_lost_and_the_others_go_on() -> None:
    with Locust(lanes=2) as locust:
        locust.hear(Hello, 2)
        locust.play({"seconds": 600}, {"seconds": 600})
        locust.hear(Progress, 2)
        pids = [frame.pid for frame in locust.heard if isinstance(frame, Hello)]
        os.kill(pids[0], signal.SIGKILL)
        (lost,) = locust.hear(Lost)
        assert lost.worker in {"here-0", "here-1"}
        assert lost.why == "the generator was killed by SIGKILL"
        locust.say(Stop(why="a generator is lost"))
        (final,) = locust.hear(Final)
        assert f"here-{final.lane}" != lost.worker
        # a job for a lane that is gone must not wait for ever
        locust.play({"seconds": 0.1}, {"seconds": 0.1}, run=2)
        again = locust.hear(Lost)
        assert again == [lost]
        locust.say(Quit(exit_code=4))
        assert locust.ended()[0] == 4
        assert not any(alive(pid) for pid in pids)


def test_a_generator_that_exits_or_speaks_nonsense_is_lost_with_the_reason() -> None:
    with Locust(lanes=2) as locust:
        locust.play({"crash": 3}, {"nonsense": 1, "seconds": 600})
        why = {lost.worker: lost.why for lost in locust.hear(Lost, 2)}
        assert why["here-0"] == "the generator exited with status 3"
        assert "spoke no frame" in why["here-1"]
        assert "Gossip" in why["here-1"]


def test_a_generator_that_hangs_is_lost_but_an_idle_one_may_be_silent() -> None:
    with Locust(lanes=2, environment={"FAKE_SILENCE_S": "2"}) as locust:
        pids = [hello.pid for hello in locust.hear(Hello, 2)]
        locust.play({"seconds": 600}, {"seconds": 0.1})
        locust.hear(Final)
        locust.hear(Progress, 30)  # three seconds of the busy one
        assert not any(isinstance(frame, Lost) for frame in locust.heard)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        (lost,) = locust.hear(Lost)
        assert lost.worker == "here-0"
        assert "said nothing for 2 s" in lost.why
        locust.say(Quit(exit_code=4))
        assert locust.ended()[0] == 4
        assert not any(alive(pid) for pid in pids)
