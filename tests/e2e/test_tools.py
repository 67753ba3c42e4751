# SPDX-License-Identifier: Apache-2.0
"""The tools around the engine: bench, synth, probe."""

import json
import os

from program import Case, DEMO, call, environment, smoke


class Bench(Case):
    def bench(self, *more):
        return self.succeeds("bench", "-m", DEMO, "-p", "24", "-n", "6", "-t", "2", "--json", *more)

    @smoke
    def test_result_has_the_keys_that_the_peers_have(self):
        done = self.bench("-r", "2").json()
        for key in ("prefill_tok_s", "decode_tok_s", "load_s", "peak_rss_bytes", "bytes_per_token", "reps"):
            self.assertIn(key, done)
        self.assertEqual(len(done["reps"]), 2)
        for key in ("prefill_tok_s", "decode_tok_s"):
            seen = sorted(one[key] for one in done["reps"])
            self.assertEqual([done[key + "_min"], done[key + "_max"]], seen)
            self.assertAlmostEqual(done[key], sum(seen) / 2)
        self.assertFalse(done["forced_ids"])

    def test_ids_are_depth_prompt_and_forced_tokens(self):
        ids = self.write("ids", " ".join(str(i % 4000) for i in range(40)).encode())
        first = self.bench("-r", "1", "-d", "10", "--ids", ids).json()
        self.assertTrue(first["forced_ids"])
        self.assertEqual((first["depth"], first["n_prompt"], first["n_gen"]), (10, 24, 6))
        short = self.write("short", b"1 2 3")
        self.assertFalse(self.bench("-r", "1", "--ids", short).json()["forced_ids"])

    def test_same_ids_read_the_same_bytes(self):
        runs = [self.bench("-r", "1", "--arena", "20%").json()["reps"][0] for _ in range(2)]
        for key in ("prefill_read_bytes", "decode_read_bytes", "decode_misses", "decode_hits"):
            self.assertEqual(runs[0][key], runs[1][key])
        self.assertGreater(runs[0]["decode_misses"], 0)

    def test_more_than_the_context_holds_is_refused(self):
        self.fails(1, "bench", "-m", DEMO, "-p", "100", "-n", "20", "--ctx", "119", names=["120", "119"])

    def test_arms_run_in_turn_and_back(self):
        arms = self.write("arms.json", json.dumps({
            "model": DEMO, "prompt": 8, "gen": 3, "rounds": 2,
            "arms": [{"name": "two", "flags": ["-t", "2"]}, {"name": "one", "flags": ["-t", "1"]}]}).encode())
        done = self.succeeds("bench", "--arms", arms, "--json").json()
        self.assertEqual([run["arm"] for run in done["runs"]], ["two", "one", "one", "two"])
        self.assertEqual([arm["name"] for arm in done["arms"]], ["two", "one"])
        self.assertEqual(done["arms"][0]["decode_tok_s_ratio"], 1)
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

    def test_what_cannot_be_made_is_refused_before_writing(self):
        out = self.path("m.gguf")
        self.fails(1, "synth", out, "--arch", "llama", names=["llama", "qwen3moe"])
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
            self.assertEqual(sorted(point), ["bytes", "depth", "gb_s", "p50_us", "p99_us", "parts"])
            self.assertLessEqual(point["p50_us"], point["p99_us"])
        kept = os.listdir(self.path("strata"))
        self.assertEqual(len(kept), 1)
        with open(os.path.join(self.path("strata"), kept[0]), encoding="utf-8") as file:
            self.assertNotIn("file", json.load(file))

    def test_a_throttled_drive_is_seen_as_slow(self):
        done = self.probe(DEMO, "--record", "256K", "--io", "sim:rate=20M", "--json").json()
        for point in done["points"]:
            self.assertLess(point["gb_s"], 0.022)
        self.assertFalse(os.path.exists(self.path("strata")), "what another engine gives is not kept")

    def test_what_cannot_be_read_is_refused(self):
        self.fails(1, "probe", self.path("nothing"), names=["nothing"])
        self.fails(1, "probe", self.write("small", b"x" * 100), names=["small", "100"])
        self.fails(2, "probe", names=["file or a folder"])
