# SPDX-License-Identifier: Apache-2.0
"""The tools around the engine: bench, synth, probe, replay, pack, kld."""

import json
import os
import random
import re
import shutil
import time

from program import Case, DEMO, KILLS, PROMPT, ROOT, VALID, call, environment, smoke, start


class Bench(Case):
    def bench(self, *more):
        return self.succeeds("bench", "-m", DEMO, "-p", "24", "-n", "6", "-t", "2", "--json", *more)

    @smoke
    def test_result_has_the_keys_that_the_peers_have(self):
        done = self.bench("-r", "2").json()
        for key in ("prefill_tok_s", "decode_tok_s", "load_s", "peak_rss_bytes", "bytes_per_token", "reps"):
            self.assertIn(key, done)
        self.assertEqual(len(done["reps"]), 2)
        for one in done["reps"]:
            self.assertEqual(len(one["token_ms"]), 6)
            self.assertEqual(one["token_ms"][0], one["decode_ms_first"])
            self.assertAlmostEqual(6000 / sum(one["token_ms"]) / one["decode_tok_s"], 1, places=2)
        for key in ("prefill_tok_s", "decode_tok_s"):
            seen = sorted(one[key] for one in done["reps"])
            self.assertEqual([done[key + "_min"], done[key + "_max"]], seen)
            self.assertAlmostEqual(done[key], sum(seen) / 2)
        self.assertFalse(done["forced_ids"])

    def test_bytes_of_a_token_are_those_of_the_weights_that_it_reads(self):
        done = self.bench("-r", "1").json()
        every = self.succeeds("inspect", DEMO, "--tensors", "--json").json()["tensor_list"]
        experts = sum(one["bytes"] for one in every if "_exps." in one["name"])
        # The table of embeddings is the head too; of that of n-grams a token reads rows. Four of 24 experts.
        others = sum(one["bytes"] for one in every if "_exps." not in one["name"] and one["name"] != "per_layer_token_embd.weight")
        self.assertAlmostEqual(done["bytes_per_token"] / (others + experts * 4 / 24), 1, delta=0.04)  # pages are rounded up
        self.assertGreater(done["memory_gb_s"], 0)
        self.assertAlmostEqual(done["memory_share"] * done["memory_gb_s"] / (done["bytes_per_token"] * done["decode_tok_s"] * 1e-9), 1,
                               places=3)

    def test_ids_are_depth_prompt_and_forced_tokens(self):
        ids = self.write("ids", " ".join(str(i % 4000) for i in range(40)).encode())
        first = self.bench("-r", "1", "-d", "10", "--ids", ids).json()
        self.assertTrue(first["forced_ids"])
        self.assertEqual((first["depth"], first["n_prompt"], first["n_gen"]), (10, 24, 6))
        short = self.write("short", b"1 2 3")
        self.assertFalse(self.bench("-r", "1", "--ids", short).json()["forced_ids"])

    def test_one_text_passes_several_depths(self):
        ids = self.write("ids", " ".join(str(i * 37 % 4000) for i in range(110)).encode())
        options = ["--ids", ids, "--arena", "max", "--popularity", "off", "--draft", "off"]
        passed = self.bench("-r", "2", "-d", "0,30,70", *options).json()
        self.assertEqual([point["depth"] for point in passed["depths"]], [0, 30, 70])
        self.assertEqual([one["depth"] for one in passed["reps"]], [0, 30, 70] * 2)
        self.assertEqual((passed["depth"], passed["decode_tok_s"]), (70, passed["depths"][2]["decode_tok_s"]))
        self.assertEqual([point["depth_tok_s"] > 0 for point in passed["depths"]], [False, False, True])
        # What is fed and answered on the way is what lies before the next: experts are those of a run of that depth alone.
        alone = self.bench("-r", "1", "-d", "70", *options).json()["reps"][0]
        self.assertEqual(passed["reps"][2]["decode_hits"] + passed["reps"][2]["decode_misses"], alone["decode_hits"] + alone["decode_misses"])
        self.assertIn(b"behind 60 tokens", self.succeeds("bench", "-m", DEMO, "-p", "8", "-n", "2", "-r", "1", "-d", "0,60", *options).out)
        for depths in ("0,29", "1,,2", "-1", "x", "5,"):
            self.fails(2, "bench", "-m", DEMO, "-p", "24", "-n", "6", "--depth=" + depths, names=["--depth", depths])

    def test_same_ids_miss_the_same_records(self):
        # Without what earlier runs taught, and without windows whose length a clock decides. Bytes may differ:
        # a read that a prompt asked for ahead of time is given up when it has not started by then.
        options = ["-r", "1", "--arena", "20%", "--popularity", "off", "--draft", "off"]
        runs = [self.bench(*options).json()["reps"][0] for _ in range(2)]
        for key in ("decode_misses", "decode_hits"):
            self.assertEqual(runs[0][key], runs[1][key])
        self.assertGreater(runs[0]["decode_misses"], 0)

    def test_what_is_read_ahead_of_its_choice_is_said_by_an_option(self):
        # off: nothing; 0: of a prompt's next layer, but no guess while decoding. What is resident stays the same.
        options = ["-r", "1", "--arena", "20%", "--popularity", "off", "--draft", "off"]
        off, no_guess, guess = (self.bench(*options, "--read-ahead", word).json()["reps"][0] for word in ("off", "0", "4"))
        late = self.bench(*options, "--read-ahead", "0", "--overlap", "off").json()["reps"][0]
        ahead = {part: [run[part + "_ahead_useful"] + run[part + "_ahead_late"] for run in (off, no_guess, late, guess)]
                 for part in ("prefill", "decode")}
        self.assertEqual(ahead["prefill"][0], 0)
        self.assertTrue(all(ahead["prefill"][1:]), ahead)
        self.assertEqual(ahead["decode"][:3], [0, 0, 0])
        self.assertGreater(ahead["decode"][3], 0)
        for key in ("prefill_misses", "decode_misses", "decode_hits"):
            self.assertEqual({run[key] for run in (off, no_guess, late, guess)}, {off[key]}, key)

    def check_profile(self, profile, passes):
        self.assertGreater(profile["memory_gb_s"], 0)
        for part, tokens in passes.items():
            seen = profile[part]
            self.assertEqual(seen["tokens"], tokens)
            # Nothing of the time is left out, and nothing counts twice.
            times = sum(row["ms_per_token"] for row in seen["rows"]) + seen["idle_ms_per_token"]
            self.assertAlmostEqual(times / seen["ms_per_token"], 1, places=6)
            self.assertGreater(seen["barriers_per_layer"], 1)
            rows = {(row["kind"], row["type"]): row for row in seen["rows"]}
            for kind in ("attn_qkv", "ffn_gate_inp", "ffn_down_exps", "token_embd"):  # the last is the head
                self.assertTrue(any(k == kind and t and row["gb_s"] > 0 for (k, t), row in rows.items()), kind)
            for kind in ("attention", "delta net", "norms", "rounding of activations", "routed sum", "router's choice"):
                self.assertIn((kind, None), rows)

    @smoke
    def test_profile_says_where_the_time_goes(self):
        done = self.bench("-r", "1", "--profile", "--draft", "off").json()
        self.check_profile(done["profile"], {"prompt": 24, "answer": 6})
        answer = {(row["kind"], row["type"]): row for row in done["profile"]["answer"]["rows"]}
        # Of a matrix a token reads every weight once: the head's are rows of the vocabulary.
        self.assertAlmostEqual(answer["token_embd", "Q6_K"]["bytes_per_token"], 8192 * 256 / 256 * 210, places=3)
        self.assertNotIn("profile", self.bench("-r", "1").json())
        # They were 22 a layer once; in the second repetition no expert is waited for, so that the number is always the same.
        again = self.bench("-r", "2", "--profile", "--draft", "off", "--arena", "max", "--popularity", "off").json()["profile"]
        self.assertLess(again["answer"]["barriers_per_layer"], 12)
        self.assertIn(b"idle threads", self.succeeds("bench", "-m", DEMO, "-p", "4", "-n", "2", "-r", "1",
                                                     "--profile").out)

    def test_profile_of_a_run_changes_nothing_else(self):
        words = ("run", "-m", DEMO, "-p", PROMPT, "-n", "8", "--temp", "0", "--draft", "off", "--json")
        plain, timed = self.succeeds(*words).json(), self.succeeds(*words, "--profile").json()
        self.assertEqual(plain["ids"], timed["ids"])
        self.check_profile(timed["profile"], {"prompt": timed["prompt_tokens"], "answer": timed["decode_tokens"]})
        # The stopwatches are planned.
        self.assertLess(plain["plan_total"], timed["plan_total"])
        self.assertLessEqual(timed["peak_rss"], timed["plan_total"])
        shown = self.succeeds(*words[:-1], "--profile")
        self.assertIn(b"idle threads", shown.err)
        self.assertEqual(shown.out.decode(), plain["text"])

    def test_more_than_the_context_holds_is_refused(self):
        self.fails(2, "bench", "-m", DEMO, "-p", "100", "-n", "20", "--ctx", "119", names=["120", "119"])

    def test_arms_run_in_turn_and_back(self):
        arms = self.write("arms.json", json.dumps({
            "model": DEMO, "prompt": 8, "gen": 3, "rounds": 2,
            "arms": [{"name": "two", "flags": ["-t", "2"]}, {"name": "one", "flags": ["-t", "1"]}]}).encode())
        done = self.succeeds("bench", "--arms", arms, "--json").json()
        self.assertEqual([run["arm"] for run in done["runs"]], ["two", "one", "one", "two"])
        self.assertEqual([arm["name"] for arm in done["arms"]], ["two", "one"])
        self.assertEqual(done["arms"][0]["decode_tok_s_ratio"], 1)
        for arm in done["arms"]:  # medians of the runs' statistics
            runs = sorted(run["misses"] for run in done["runs"] if run["arm"] == arm["name"])
            self.assertEqual(arm["stats"]["misses"], sum(runs) / 2)
            self.assertLessEqual(arm["stats"]["prefill_drive_busy_share"], 1)
            self.assertNotIn("token_ms", arm["stats"])
        for run in done["runs"]:
            self.assertEqual(len(run["token_ms"]), 3)
            for part, tokens in (("prefill", 8), ("decode", 3)):
                for key in ("hits", "misses", "ahead_useful", "ahead_late", "ahead_wasted", "wait_s", "drive_busy_s"):
                    self.assertIn(part + "_" + key, run)
                self.assertGreater(run[part + "_hits"] + run[part + "_misses"], tokens)
        self.assertIn(b"two", self.succeeds("bench", "--arms", arms).out)

    def test_bad_arms_are_refused_by_name(self):
        for text, names in [(b"{}", ["model"]), (b'{"model": "x", "arms": []}', ["arms"]), (b"[", ["bad.json"]),
                            (b'{"model": "x", "rounds": 0, "arms": [{"name": "a"}, {"name": "b"}]}', ["rounds"]),
                            (b'{"model": "x", "arms": [{"name": "a"}, {"flags": []}]}', ["arm 2"]),
                            (b'{"model": "x", "arms": [{"name": "a"}, {"name": "b", "flags": [1]}]}', ["flag 0", "b"])]:
            with self.subTest(text=text):
                self.fails(1, "bench", "--arms", self.write("bad.json", text), names=names)
        absent = self.write("absent.json", b'{"model": "/nothing.gguf", "arms": [{"name": "a"}, {"name": "b"}]}')
        done = call("bench", "--arms", absent)
        self.assertEqual((done.status, done.out), (1, b""))
        self.assertIn(b"arm a", done.err)
        self.fails(2, "bench", "--arms", "x", "-m", DEMO, names=["--arms", "-m"])


class Synth(Case):
    @smoke
    def test_a_dry_run_shows_the_table_and_writes_nothing(self):
        out = self.path("m.gguf")
        shown = self.succeeds("synth", out, "--layers", "48", "--vocab", "248320", "--ngram-base", "20000000", "--dry-run").out
        self.assertIn(b"one expert 1.4752 MB", shown)
        self.assertFalse(os.path.exists(out))

    def test_a_draft_layer_is_counted_apart_from_what_a_token_reads(self):
        plain, both, alone = (self.succeeds("synth", self.path("m.gguf"), "--dry-run", *more).out.decode().splitlines()
                              for more in ((), ("--mtp", "in"), ("--mtp", "only")))
        self.assertEqual(both[:-2], plain[:-1])
        self.assertEqual(both[-2], alone[-2])
        self.assertTrue(both[-2].startswith("draft layer "), both)
        self.assertEqual(both[-1].split()[2], plain[-1].split()[2])
        self.assertGreater(float(both[-1].split()[1]), float(plain[-1].split()[1]) + 800)

    def test_what_cannot_be_made_is_refused_before_writing(self):
        out = self.path("m.gguf")
        self.fails(2, "synth", out, "--arch", "llama", names=["llama", "qwen3moe"])
        self.fails(2, "synth", out, "--arch", "qwen3moe", "--mtp", "in", names=["--mtp", "qwen3moe"])
        self.fails(2, "synth", out, "--mtp-right", "1.5", names=["--mtp-right"])
        self.fails(2, "synth", names=["file to write"])
        self.assertEqual(os.listdir(self.folder), [])


class Probe(Case):
    def probe(self, *arguments):
        return self.succeeds("probe", *arguments, env=environment(XDG_CACHE_HOME=self.folder))

    @smoke
    def test_result_has_a_point_for_every_depth_and_is_kept(self):
        done = self.probe(DEMO, "--record", "64K", "--json").json()
        self.assertEqual(done["file"], DEMO)
        depths = [p["depth"] for p in done["points"] if p["parts"] == 1 and p["bytes"] == 65536]
        self.assertEqual(depths, [1, 2, 4, 8, 16, 32])
        self.assertEqual([p["parts"] for p in done["points"] if p["parts"] > 1], [2, 4, 8])
        for point in done["points"]:
            self.assertEqual(sorted(point), ["bytes", "cpu_us", "depth", "gb_s", "p50_us", "p99_us", "parts"])
            self.assertLessEqual(point["p50_us"], point["p99_us"])
        kept = os.listdir(self.path("strata"))
        self.assertEqual(len(kept), 1)
        with open(os.path.join(self.path("strata"), kept[0]), encoding="utf-8") as file:
            self.assertNotIn("file", json.load(file))

    def test_every_run_says_what_was_to_be_expected_and_by_what(self):
        env = environment(XDG_CACHE_HOME=self.folder)
        profile = self.path("demo.strata-pop")
        run = ("run", "-m", DEMO, "--temp", "0", "--popularity", profile)
        answer = run + ("-p", PROMPT, "-n", "20", "--arena")

        def forecast(*arguments):
            lines = self.succeeds(*arguments, env=env).err.decode().splitlines()
            self.assertLessEqual(len(lines), 1)
            return [line[line.index("; forecast was "):] for line in lines if "; forecast was " in line]

        some = r"^; forecast was [\d.]+( to [\d.]+)? a second, waiting [\d.]+( to [\d.]+)? ms a token"
        first = forecast(*answer, "30%")
        self.assertRegex(first[0], some + r" \(the drive as the trunk was read, routing as in other models, computing as in this run\)$")
        self.assertRegex(forecast(*answer, "30%")[0], some + r" \(the drive as the trunk was read, routing as in other models\)$")
        with open(VALID, "rb") as file:
            text = self.write("text", file.read(8000))
        self.assertEqual(forecast(*run, "-f", text, "-n", "0"), [], "no answer, nothing to expect")
        self.probe(DEMO, "--record", "64K")
        self.assertRegex(forecast(*answer, "30%")[0], some + "$")
        self.assertRegex(forecast(*answer, "max")[0], some + "$")
        self.assertRegex(forecast(*answer, "30%", "--io", "fake")[0], r"^; forecast was [\d.]+ a second, no waiting$")
        self.assertEqual(forecast(*answer, "30%", "--quiet"), [])

    def test_a_forecast_follows_the_drive_that_is_simulated(self):
        env = environment(XDG_CACHE_HOME=self.folder)
        answer = ("run", "-m", DEMO, "--temp", "0", "--popularity", "off", "-p", PROMPT, "-n", "20", "--json", "--arena", "10%",
                  "--read-ahead", "off", "--io")

        def waits(engine):
            found = self.succeeds(*answer, engine, env=env).json()
            self.assertEqual(found["forecast"]["drive"], "unused" if engine == "fake" else "trunk")
            return found["forecast"]["wait_ms"], 1e3 * found["decode_wait_s"] / found["decode_tokens"]

        (least, most), real = waits("sim:rate=50M")
        self.assertGreater(most, 10)
        self.assertLess(most / 4, real, "a forecast of waits is of their size")
        self.assertLess(real, most * 4)
        self.assertEqual(waits("fake")[0], [0, 0])

    def test_plans_expect_speeds_by_what_was_measured_before(self):
        env = environment(XDG_CACHE_HOME=self.folder)
        plan = ("plan", DEMO, "--threads", "2")

        def speeds():
            return [point["tok_s"] for point in self.succeeds(*plan, "--json", env=env).json()["points"]]

        self.assertIn(b"after `strata probe MODEL` and a run that answered 16 tokens", self.succeeds(*plan, env=env).err)
        self.succeeds("run", "-m", DEMO, "-p", PROMPT, "-n", "20", "--threads", "2", "--popularity", "off", env=env)
        self.assertIn(b"after `strata probe MODEL`\n", self.succeeds(*plan, env=env).err)
        self.assertEqual(set(speeds()), {None})
        self.probe(DEMO, "--record", "64K")
        self.assertEqual(self.succeeds(*plan, env=env).err, b"")
        known = speeds()
        self.assertEqual(len(known), 5)
        self.assertEqual(known, sorted(known), "more memory is not slower")
        self.assertLess(known[0], known[-1])
        self.assertIn(b"tok/s", self.succeeds(*plan, env=env).out)
        self.assertIn(b"a run that answered 16 tokens\n", self.succeeds("plan", DEMO, "--threads", "1", env=env).err, "another setup")
        kept = [name for name in os.listdir(self.path("strata")) if name.startswith("compute-")]
        self.assertEqual(len(kept), 1)
        for damaged in (b"", b"{}", b'{"compute_ms": -1}', b'{"compute_ms": "5"}', b'{"compute_ms": 1e999}', b'{"compute_ms": 1e300}',
                        b"[" * 70000):
            self.write(os.path.join("strata", kept[0]), damaged)
            self.assertEqual(set(speeds()), {None}, damaged[:20])

    def test_what_no_drive_gives_is_no_result_of_a_probe(self):
        def drive(**changed):
            point = {"bytes": 65536, "depth": 1, "parts": 1, "gb_s": 1, "p50_us": 100, "p99_us": 200, "cpu_us": 20, **changed}
            return self.write("drive.json", json.dumps({"engine": "uring", "direct": True, "points": [point]}).encode())

        plan = ("plan", DEMO, "--compute", "5", "--json")
        known = self.succeeds(*plan, "--drive", drive()).json()["points"]
        self.assertNotIn(None, [point["tok_s"] for point in known], "--drive and --compute ask for a forecast")
        for changed in ({"gb_s": 1e-9}, {"gb_s": 1e300}, {"p50_us": 1e300}, {"p50_us": -1}, {"p99_us": 1e9}, {"bytes": 1 << 50}):
            with self.subTest(changed=changed):
                self.fails(1, *plan, "--drive", drive(**changed), names=["drive.json"])
        for cpu_us in (-5, 1e300): # a file of an older program has none
            self.succeeds(*plan, "--drive", drive(cpu_us=cpu_us))
        self.fails(1, "plan", DEMO, "--drive", self.path("missing"), names=["missing"])
        self.fails(1, "plan", DEMO, "--trace", self.path("missing"), names=["missing"])

    def test_a_probe_that_is_killed_leaves_no_file(self):
        probe = start("probe", self.folder)
        self.addCleanup(probe.communicate)
        self.addCleanup(probe.kill)

        def holds_a_file_without_a_name():
            files = "/proc/%d/fd" % probe.pid
            try:
                links = [os.readlink(os.path.join(files, name)) for name in os.listdir(files)]
            except FileNotFoundError: # closed meanwhile
                return False
            return any(link.startswith(self.folder) and link.endswith("(deleted)") for link in links)

        while probe.poll() is None and not holds_a_file_without_a_name():
            time.sleep(0.001)
        self.assertIsNone(probe.poll(), "it ended with a file that has its name")
        probe.kill()
        probe.wait()
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_throttled_drive_is_seen_as_slow(self):
        done = self.probe(DEMO, "--record", "256K", "--io", "sim:rate=20M", "--json").json()
        for point in done["points"]:
            self.assertLess(point["gb_s"], 0.022)
        self.assertFalse(os.path.exists(self.path("strata")), "what another engine gives is not kept")

    def test_what_cannot_be_read_is_refused(self):
        self.fails(1, "probe", self.path("nothing"), names=["nothing"])
        self.fails(1, "probe", self.write("small", b"x" * 100), names=["small", "100"])

    def test_a_record_may_be_one_byte(self):
        figures = self.succeeds("probe", DEMO, "--record", "1", "--io", "fake", "--json").json()
        self.assertTrue(all(point["bytes"] > 0 for point in figures["points"]), figures)
        self.fails(2, "probe", names=["file or a folder"])


class Explain(Case):
    @smoke
    def test_every_wait_has_a_reason(self):
        stats = self.path("stats.json")
        plain = ("run", "-m", DEMO, "-p", "The old house", "-n", "12", "--temp", "0", "--popularity", "off", "--arena", "20%",
                 "--io", "sim:rate=200M,delay=2-4ms,seed=1", "--json")
        done = self.succeeds(*plain, "--explain", "--stats", stats)
        lines = done.err.decode().splitlines()
        all_us = int(re.search(r"waited (\d+) us in all", lines[0]).group(1))
        self.assertEqual(sum(int(line.split()[0]) for line in lines[1:lines.index("the slowest tokens of the answer:")]), all_us)
        with open(stats, encoding="utf-8") as file:
            said = json.load(file)
        waited = said["wait_ms_per_token"] * (said["prefill_tokens"] + said["decode_tokens"]) * 1000
        self.assertAlmostEqual(all_us, waited, delta=2)
        self.assertRegex(done.err, rb"layer \d+, expert \d+: (evicted|guessed|never)")
        loading = re.search(r"^besides, the first tokens waited (\d+) us for weights that were being loaded$", lines[-1])
        self.assertLessEqual(int(loading.group(1)) if loading else 0, said["load_s"] * 1e6 + 1)
        again = self.succeeds(*plain)
        self.assertEqual(again.err, b"")
        self.assertEqual(again.json()["ids"], done.json()["ids"])


class Replay(Case):
    def traced(self, *options, draft="off"):
        trace = self.path("run.trc")
        with open(VALID, "rb") as file:
            text = self.write("text", file.read(1500))
        done = self.succeeds("run", "-m", DEMO, "-f", text, "-n", "30", "--temp", "0", "--popularity", "off",
                             "--draft", draft, "--trace", trace, "--json", *options).json()
        return trace, done

    def replay(self, *arguments):
        return self.succeeds("replay", *arguments, env=environment(XDG_CACHE_HOME=self.folder))

    @smoke
    def test_a_replay_counts_what_the_run_counted(self):
        trace, run = self.traced("--arena", "30%", "--band", "128")
        done = self.replay(trace, "--shares", "30", "--json").json()
        self.assertTrue(done["match"])
        self.assertEqual(done["live"], {"hits": run["hits"], "misses": run["misses"]})
        self.assertEqual({key: done["replayed"][key] for key in ("hits", "misses")}, done["live"])
        self.assertEqual({row["policy"] for row in done["rows"]}, {"lru", "lfu", "layer", "bound"})

    def test_it_does_so_for_every_policy_guess_and_routing(self):
        for options in (("--arena", "20%", "--policy", "lfu", "--read-ahead", "off"), ("--arena", "50%", "--read-ahead", "6"),
                        ("--arena", "30%", "--policy", "layer", "--moce", "0.8"), ("--arena", "max",)):
            with self.subTest(options=options):
                trace, run = self.traced(*options)
                done = self.replay(trace, "--shares", "30", "--json").json()
                self.assertTrue(done["match"])
                self.assertEqual(done["live"]["hits"], run["hits"])

    def test_it_does_so_for_windows_of_guessed_tokens(self):
        trace, run = self.traced("--arena", "30%", draft="lookup")
        done = self.replay(trace, "--shares", "30", "--json").json()
        self.assertTrue(done["match"])
        self.assertEqual(done["live"]["misses"], run["misses"])

    def test_a_trace_does_not_change_the_text(self):
        _, traced = self.traced("--arena", "30%")
        text = self.path("text")
        plain = self.succeeds("run", "-m", DEMO, "-f", text, "-n", "30", "--temp", "0", "--popularity", "off", "--draft", "off",
                              "--json", "--arena", "30%").json()
        self.assertEqual((plain["ids"], plain["hits"], plain["misses"]), (traced["ids"], traced["hits"], traced["misses"]))

    def test_other_counts_than_the_runs_are_an_error(self):
        trace, _ = self.traced("--arena", "30%", "--policy", "lru")
        with open(trace, "rb") as file:
            content = file.read()
        cut = content[:content.rindex(b"END!")].replace(b"policy=lru", b"policy=lfu")  # without its end nothing is checked
        done = call("replay", self.write("other.trc", cut), "--shares", "30", "--json",
                    env=environment(XDG_CACHE_HOME=self.folder))
        self.assertEqual(done.status, 1)
        self.assertFalse(done.json()["match"])
        self.assertIn(b"do not trust", done.err)

    def test_table_csv_and_chart(self):
        handed = os.path.join(ROOT, "tests", "data", "traces", "gen-1.trc")
        drive = self.path("drive.json")
        probed = self.succeeds("probe", DEMO, "--record", "64K", "--json", env=environment(XDG_CACHE_HOME=self.folder))
        self.write("drive.json", probed.out)
        chart = self.path("chart.svg")
        lines = self.replay(handed, "--shares", "20,50", "--csv", "--svg", chart, "--drive", drive, "--compute", "10",
                            "--moce", "0,0.5").out.decode().splitlines()
        self.assertEqual(lines[0], "policy,slots,share,read_ahead,moce,hits,misses,hit_rate,wait_ms_per_token,tok_s")
        rows = [line.split(",") for line in lines[1:]]
        self.assertEqual(len(rows), 2 * (3 * 2 * 2 + 1))
        hits = {(row[0], row[1], row[3], row[4]): int(row[5]) for row in rows}
        for (policy, slots, ahead, moce), n in hits.items():
            if moce == "0":
                self.assertLessEqual(n, hits["bound", slots, "off", "0"])
            else:
                self.assertGreater(n, hits[policy, slots, ahead, "0"], "preferring residents gives more hits")
        with open(chart, encoding="utf-8") as file:
            svg = file.read()
        self.assertTrue(svg.startswith("<svg") and svg.rstrip().endswith("</svg>"))
        self.assertEqual(svg.count("<polyline"), 4)

    def test_what_is_read_ahead_is_worth_what_the_replay_says(self):
        for ranks in ("3", "6"):
            trace, run = self.traced("--arena", "30%", "--read-ahead", ranks, "--policy", "layer")
            text = self.replay(trace, "--shares", "30", "--read-ahead", ranks).out.decode()
            row = next(line.split() for line in text.splitlines() if line.startswith("layer "))
            self.assertEqual((int(row[5]), int(row[6])), (run["hits"], run["misses"]))
            useful, wasted = run["ahead_useful"] + run["ahead_late"], run["ahead_wasted"] + run["ahead_cancelled"]
            self.assertGreater(useful, 100)
            self.assertAlmostEqual(useful, int(row[8]), delta=0.1 * useful)
            self.assertAlmostEqual(useful / (useful + wasted), int(row[8]) / (int(row[8]) + int(row[9])), delta=0.1)

    def test_other_guesses_can_be_compared_and_change_no_hit(self):
        handed = os.path.join(ROOT, "tests", "data", "traces", "gen-2.trc")
        words = ("off", "4", "previous:4", "previous2:4", "table:4", "table2:4")
        text = self.replay(handed, "--shares", "20", "--read-ahead", ",".join(words)).out.decode()
        rows = [line.split() for line in text.splitlines() if line.startswith("layer")]
        self.assertEqual([row[3] for row in rows], list(words))
        self.assertEqual(len({(row[5], row[6]) for row in rows}), 1)
        useful = {row[3]: int(row[8]) for row in rows}
        self.assertEqual(useful["off"], 0)
        self.assertGreater(useful["4"], useful["table:4"])
        self.assertGreater(useful["table:4"], useful["table2:4"])
        self.assertGreater(useful["table2:4"], 0)
        done = call("replay", handed, "--read-ahead", "table:x", env=environment(XDG_CACHE_HOME=self.folder))
        self.assertEqual((done.status, done.out), (2, b""))
        self.assertIn(b'--read-ahead: "x" is not a number', done.err)
        done = call("replay", handed, "--read-ahead", "table:1.5", env=environment(XDG_CACHE_HOME=self.folder))
        self.assertEqual((done.status, done.out), (2, b""))
        self.assertIn(b'--read-ahead: "1.5" is not a whole number', done.err)

    def test_the_routers_guess_two_layers_ahead_can_be_compared(self):
        trace, run = self.traced("--arena", "30%", "--trace-guesses", "2")
        with open(trace, "rb") as file:
            self.assertEqual(file.read(8), b"STRTRC03")
        words = ("off", "4", "router2:4", "router2:auto", "table2:4")
        text = self.replay(trace, "--shares", "20", "--read-ahead", ",".join(words)).out.decode()
        self.assertIn("the same\n", text)
        rows = {line.split()[3]: line.split() for line in text.splitlines() if line.startswith("layer")}
        self.assertEqual(tuple(rows), words)
        self.assertEqual(len({(row[5], row[6]) for row in rows.values()}), 1, "no guess changes a hit")
        useful = {word: int(row[8]) for word, row in rows.items()}
        self.assertGreater(useful["4"], useful["router2:4"])
        self.assertGreater(useful["router2:4"], useful["table2:4"])
        csv = self.replay(trace, "--shares", "20", "--read-ahead", "router2:4", "--csv").out.decode().splitlines()
        self.assertEqual([line.split(",")[3] for line in csv[1:]], ["router2:4"] * 3 + ["off"])
        rows = self.replay(trace, "--shares", "20", "--read-ahead", "off", "--moce", ".5", "--json").json()["rows"]
        self.assertEqual([row["moce"] for row in rows], [0.5] * 3 + [0])

    def test_without_guesses_two_layers_ahead_they_cannot_be(self):
        handed = os.path.join(ROOT, "tests", "data", "traces", "gen-2.trc")
        with open(handed, "rb") as file:
            self.assertEqual(file.read(8), b"STRTRC01")
        self.fails(2, "replay", "-q", handed, "--read-ahead", "router2:4",
                   names=["gen-2.trc", "no router's guesses two layers ahead", "router2:4"])

    def test_times_are_of_the_models_drive_with_m(self):
        trace, _ = self.traced("--arena", "30%")
        own = environment(XDG_CACHE_HOME=self.folder)
        self.succeeds("probe", DEMO, "--record", "64K", env=own)
        rows = self.succeeds("replay", trace, "-m", DEMO, "--shares", "30", "--json", env=own).json()["rows"]
        self.assertIsNotNone(rows[0]["wait_ms_per_token"])
        bare = self.succeeds("replay", trace, "-m", DEMO, "--shares", "30", "--json",
                             env=environment(XDG_CACHE_HOME=self.path("empty")))
        self.assertIsNone(bare.json()["rows"][0]["wait_ms_per_token"])
        self.assertIn(b"the drive of " + DEMO.encode() + b" was not measured", bare.err)
        other = os.path.join(ROOT, "tests", "data", "fixtures", "models", "q4e_plain.gguf")
        self.fails(1, "replay", trace, "-m", other, names=["run.trc", "another model", "q4e_plain.gguf"])
        self.fails(1, "replay", trace, "-m", self.path("none"), names=["none"])

    def test_a_plan_forecasts_from_it(self):
        trace, run = self.traced("--arena", "30%")
        points = [{"bytes": 1 << 20, "depth": depth, "parts": 1, "gb_s": 0.2, "p50_us": 5243 * depth, "p99_us": 6000 * depth}
                  for depth in (1, 8)]
        drive = self.write("drive.json", json.dumps({"engine": "pread", "direct": True, "points": points}).encode())
        plan = ("plan", DEMO, "--arena", "30%", "--forecast", "--drive", drive)
        done = self.succeeds(*plan, "--trace", trace, "--json").json()["points"]
        self.assertEqual([point["name"] for point in done], ["floor", "cycle", "knee", "chosen", "ceiling"])
        speed = {point["name"]: point["tok_s"] for point in done}
        self.assertTrue(0 < speed["floor"] <= speed["chosen"] <= speed["ceiling"], speed)
        self.assertIn(b"tok/s", self.succeeds(*plan, "--compute", "10").out)
        nothing_kept = environment(XDG_CACHE_HOME=self.path("empty"))
        without = self.succeeds(*plan, "--json", env=nothing_kept).json()["points"]
        self.assertEqual([point["tok_s"] for point in without], [None] * 5)
        timed = self.succeeds(*plan, "--compute", "10", "--json").json()["points"]
        self.assertEqual([point["name"] for point in timed], ["floor", "cycle", "knee", "chosen", "ceiling"])
        speed = {point["name"]: point["tok_s"] for point in timed}
        self.assertTrue(0 < speed["floor"] <= speed["chosen"] <= speed["knee"] <= speed["ceiling"] <= 100, speed)
        other = self.path("other.trc")
        with open(trace, "rb") as file:
            content = bytearray(file.read())
        content[content.index(bytes(content[32:48]))] ^= 1
        with open(other, "wb") as file:
            file.write(content)
        self.assertNotEqual(call("plan", DEMO, "--forecast", "--drive", drive, "--trace", other).status, 0)

    def test_what_is_no_trace_is_refused(self):
        self.fails(1, "replay", DEMO, names=["strata-demo", "not a trace"])
        self.fails(2, "replay", names=["needs a trace"])


class Pack(Case):
    RUN = ("-p", PROMPT, "-n", "24", "--temp", "0", "--arena", "30%", "--popularity", "off", "--draft", "off", "--json")

    def setUp(self):
        super().setUp()
        self.model = self.path("m.gguf")
        self.sidecar = self.path("m.strata-pack")
        shutil.copy(DEMO, self.model)

    def run_it(self, *options):
        done = self.succeeds("run", "-m", self.model, *self.RUN, *options)
        result = done.json()
        return (result["ids"], result["hits"], result["misses"]), done.err

    @smoke
    def test_same_text_from_a_sidecar(self):
        plain, _ = self.run_it()
        self.succeeds("pack", self.model, "--checksums")
        self.succeeds("pack", self.model, "--verify")
        packed, said = self.run_it("-v")
        self.assertIn(b"experts are read from here", said)
        self.assertEqual(packed, plain)
        self.assertEqual(self.run_it("--sidecar", "off"), (plain, b""))

    def test_a_damaged_record_is_read_from_the_model(self):
        plain, _ = self.run_it()
        self.succeeds("pack", self.model, "--checksums")
        with open(self.sidecar, "r+b") as file:
            # Header and checksums take 4,096 bytes each, then 12 layers of 24 records.
            record = (os.path.getsize(self.sidecar) - 8192) // 288
            for i in range(0, 288, 2):
                file.seek(8192 + i * record + 5)
                byte = file.read(1)
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([byte[0] ^ 0x10]))
        damaged, said = self.run_it()
        self.assertEqual(damaged, plain)
        self.assertIn(b"is damaged; it is read from the model instead", said)
        self.fails(1, "pack", self.model, "--verify", names=["not as the model has it"])

    def test_a_sidecar_of_another_model_is_ignored_or_refused(self):
        plain, _ = self.run_it()
        self.write("m.strata-pack", b"STRPCK01" + bytes(8000))
        self.assertIn(b"the sidecar is not used", self.run_it()[1])
        self.assertEqual(self.run_it()[0], plain)
        self.fails(1, "run", "-m", self.model, *self.RUN, "--sidecar", self.sidecar, names=["another model"])
        self.fails(1, "run", "-m", self.model, *self.RUN, "--sidecar", self.path("none"), names=["none"])

    def test_killed_at_any_moment_it_goes_on_and_nothing_wrong_is_accepted(self):
        self.succeeds("pack", self.model, "--checksums")
        with open(self.sidecar, "rb") as file:
            whole = file.read()
        some = random.Random(5)
        for _ in range(KILLS):
            if os.path.exists(self.sidecar):
                os.remove(self.sidecar)
            process = start("pack", self.model, "--checksums")
            time.sleep(some.random() * 0.12)
            process.kill()
            process.communicate()
            if os.path.exists(self.sidecar):
                with open(self.sidecar, "rb") as file:
                    self.assertEqual(file.read(), whole, "what has its name is whole")
        self.succeeds("pack", self.model, "--checksums")
        with open(self.sidecar, "rb") as file:
            self.assertEqual(file.read(), whole)
        self.assertFalse(os.path.exists(self.sidecar + ".part"))

    def test_copies_of_the_sidecar_share_the_reads(self):
        plain, _ = self.run_it()
        self.succeeds("pack", self.model, "--checksums")
        copy = self.path("copy.strata-pack")
        shutil.copy(self.sidecar, copy)
        packed, said = self.run_it("--replica", copy, "-v")
        self.assertEqual(packed, plain)
        self.assertIn(b"experts are read from here", said)
        with open(copy, "r+b") as file:  # every record: what is read from the copy is known by its damage
            record = (os.path.getsize(copy) - 8192) // 288
            for i in range(288):
                file.seek(8192 + i * record + 5)
                byte = file.read(1)
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([byte[0] ^ 0x10]))
        damaged, said = self.run_it("--replica", copy)
        self.assertEqual(damaged, plain)
        self.assertIn(b"is damaged in one of the copies; it is read from the model instead", said)
        self.fails(1, "run", "-m", self.model, *self.RUN, "--sidecar", "off", "--replica", copy, names=[copy, "no sidecar"])
        self.succeeds("pack", self.model, "-o", copy)
        self.fails(1, "run", "-m", self.model, *self.RUN, "--replica", copy, names=[copy, "no copy of"])

    def test_a_replica_of_the_model_brings_its_sidecar(self):
        plain, _ = self.run_it()
        self.succeeds("pack", self.model)
        copy = self.path("copy.gguf")
        shutil.copy(DEMO, copy)
        without, said = self.run_it("--replica", copy)
        self.assertEqual(without, plain)
        self.assertIn(b"copy.strata-pack: no such file; the sidecar is not used", said)
        self.fails(1, "run", "-m", self.model, *self.RUN, "--sidecar", self.sidecar, "--replica", copy, names=["copy.strata-pack"])
        self.succeeds("pack", copy)
        packed, said = self.run_it("--replica", copy, "-v")
        self.assertEqual(packed, plain)
        self.assertIn(b"experts are read from here", said)
        self.assertNotIn(b"not used", said)

    def test_a_folder_that_cannot_be_written_is_an_error(self):
        self.fails(1, "pack", self.model, "-o", "/proc/nothing", names=["/proc/nothing"])


class Kld(Case):
    def kld(self, *options):
        return self.succeeds("kld", "-m", DEMO, "-f", VALID, "--popularity", "off", "--json", *options).json()

    @smoke
    def test_a_configuration_is_itself(self):
        done = self.kld("-n", "60", "--repeat")
        self.assertEqual((done["kl_mean"], done["kl_max"], done["top1"], done["tokens"]), (0, 0, 1, 59))
        self.assertEqual(done["ppl"], done["ppl_ref"])
        self.assertLess(done["ppl"], 200)

    def test_recorded_logits_are_a_reference_too(self):
        with open(VALID, "rb") as file:
            ids = self.ids(file.read(4000))[:50]
        out = self.path("logits.npy")
        self.succeeds("logits", "-m", DEMO, "--ids", self.write_ids("ids", ids), "--out", out)
        done = self.kld("-n", "50", "--ref", out)
        self.assertEqual((done["kl_max"], done["top1"]), (0, 1))
        self.fails(1, "kld", "-m", DEMO, "-f", VALID, "-n", "51", "--ref", out, names=["50 rows", "51"])
        self.fails(1, "kld", "-m", DEMO, "-f", VALID, "-n", "51", "--ref", DEMO, names=["not a .npy file"])

    def test_windows_are_scored_apart_and_routing_by_residency_costs(self):
        done = self.kld("-n", "90", "--ctx", "40", "--arena", "20%", "--against", "--moce 0.85")
        self.assertEqual(done["tokens"], 39 + 39 + 9)
        self.assertGreater(done["kl_mean"], 0)
        self.assertGreater(done["ppl_ref"], done["ppl"])
        stepwise = self.kld("-n", "90", "--ctx", "40", "--arena", "20%", "--moce", "0", "--against", "--moce 0.0001")
        self.assertLess(stepwise["kl_mean"], done["kl_mean"])

    def test_what_makes_no_sense_is_refused(self):
        self.fails(2, "kld", "-m", DEMO, "-f", VALID, names=["--against", "--ref", "--repeat"])
        self.fails(2, "kld", "-m", DEMO, "-f", VALID, "--against", "--nonsense", names=["--against", "--nonsense"])
