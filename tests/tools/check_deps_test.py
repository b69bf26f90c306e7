"""tools/check_deps accepts a tree that keeps the rules and names every kind of breach."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TOOL = ROOT / "tools" / "check_deps"

GOOD = {
    "src/base/CMakeLists.txt": "xms_module(base)\n",
    "src/base/result.h": "#pragma once\n#include <utility>\n",
    "src/base/testing/clock.h": '#include "base/result.h"\n',
    "src/model/CMakeLists.txt": "xms_module(model SOURCES ids.cc PUBLIC xms::base PRIVATE xms_dep::xxhash)\n",
    "src/model/ids.h": '#include "base/result.h"\n',
    "src/model/ids.cc": '#include "model/ids.h"\n#include "model/internal/digits.h"\n',
    "src/model/internal/digits.h": "",
    "src/kv_index/CMakeLists.txt": "xms_module(kv_index SOURCES a.cc\n  PUBLIC xms::model xms::base)\n"
                                   "xms_testing_module(kv_index PUBLIC xms::base_testing)\n",
    "src/kv_index/a.cc": '#include "model/ids.h"\n#include "base/result.h"\n',
    "src/kv_index/testing/fake.h": '#include "base/testing/clock.h"\n#include "kv_index/testing/other.h"\n',
    "src/http/CMakeLists.txt": "xms_module(http PUBLIC xms::base)\n",
    "src/http/a.h": '#include "base/result.h"\n',
    "src/gateway/CMakeLists.txt": "add_library(xms_gateway_port INTERFACE)\n"
                                  "target_link_libraries(xms_gateway_port INTERFACE xms::http)\n"
                                  "xms_module(gateway PUBLIC xms::gateway_port xms::kv_index)\n",
    "src/gateway/engine_plane.h": '#include "http/a.h"\n',
    "src/plane_http/CMakeLists.txt": "xms_module(plane_http SOURCES p.cc PUBLIC xms::gateway_port xms::http)\n",
    "src/plane_http/p.cc": '#include "gateway/engine_plane.h"\n',
}


class CheckDeps(unittest.TestCase):
    def run_on(self, files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = pathlib.Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            done = subprocess.run([sys.executable, str(TOOL), "--root", folder], capture_output=True, text=True,
                                  check=False)
            return done.returncode, done.stdout + done.stderr

    def assert_rejected(self, name, text, *expected):
        status, output = self.run_on({**GOOD, name: text})
        self.assertEqual(status, 1, output)
        self.assertEqual(len(output.splitlines()), 1, output)
        for part in expected:
            self.assertIn(part, output)

    def test_accepts_a_tree_that_keeps_the_rules(self):
        self.assertEqual(self.run_on(GOOD), (0, ""))

    def test_rejects_an_include_upwards_and_names_file_line_and_what_is_allowed(self):
        self.assert_rejected("src/model/ids.h", '#pragma once\n#include "kv_index/a.h"\n',
                             "src/model/ids.h:2: model -> kv_index is not allowed; model may use: base")

    def test_rejects_an_edge_between_leaves(self):
        self.assert_rejected("src/kv_index/b.cc", '#include "kv_events/decoder.h"\n', "kv_index -> kv_events")

    def test_rejects_a_link_that_no_include_uses(self):
        self.assert_rejected("src/model/CMakeLists.txt", "xms_module(model\n  PUBLIC xms::base\n  PRIVATE xms::http)\n",
                             "src/model/CMakeLists.txt:3: model -> http")

    def test_rejects_an_include_that_the_build_file_does_not_show(self):
        self.assert_rejected("src/kv_index/b.cc", '#include "observability/metrics.h"\n',
                             "does not link xms::observability")

    def test_rejects_testing_code_in_production(self):
        self.assert_rejected("src/kv_index/b.cc", '#include "base/testing/clock.h"\n', "base/testing is not allowed")
        self.assert_rejected("src/http/CMakeLists.txt", "xms_module(http PUBLIC xms::base xms::base_testing)\n",
                             "xms::base_testing is not allowed")

    def test_rejects_another_module_s_internals(self):
        self.assert_rejected("src/kv_index/b.cc", '#include "model/internal/digits.h"\n', "internal/ is for model alone")

    def test_rejects_more_than_the_port_of_the_gateway(self):
        self.assert_rejected("src/plane_http/q.cc", '#include "gateway/routes.h"\n',
                             "plane_http may use only gateway/engine_plane.h")

    def test_rejects_zeromq_outside_its_modules(self):
        self.assert_rejected("src/kv_index/b.cc", "#include <zmq.hpp>\n", "kv_index -> ZeroMQ")
        self.assert_rejected("src/http/CMakeLists.txt", "xms_module(http PUBLIC xms::base xms_dep::zmq)\n",
                             "http -> ZeroMQ")

    def test_rejects_paths_that_do_not_begin_with_a_module(self):
        self.assert_rejected("src/kv_index/b.cc", '#include "a.h"\n', "write the path from src/")

    def test_rejects_a_folder_that_the_table_does_not_know(self):
        self.assert_rejected("src/utils/a.h", "", "src/utils:1: is not in the table")

    def test_ignores_comments_in_build_files(self):
        status, output = self.run_on({**GOOD, "src/model/CMakeLists.txt": "# not xms_module(model xms::http)\n" +
                                      GOOD["src/model/CMakeLists.txt"]})
        self.assertEqual((status, output), (0, ""))

    def test_knows_every_module_of_the_build(self):
        text = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
        modules = text.split("set(XMS_MODULES", 1)[1].split(")", 1)[0].split()
        table = subprocess.run([sys.executable, str(TOOL), "--table"], capture_output=True, text=True, check=True)
        known = {line.split(":")[0] for line in table.stdout.splitlines()}
        self.assertEqual(set(modules) - known, set())


if __name__ == "__main__":
    unittest.main()
