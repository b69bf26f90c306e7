"""docs/requirements.md and the tests agree: every id has tests, every test named there exists and carries the id."""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# How many there are of each letter, and whether each of them must have a test.
IDS = {"A": (7, True), "B": (5, True), "C": (8, True), "D": (11, True), "E": (8, True), "F": (4, True),
       "G": (9, False), "H": (4, False)}

ROW = re.compile(r"^\| ([A-H]\d+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
CPP_TEST = re.compile(r"^(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\)", re.MULTILINE)
PYTHON_TEST = re.compile(r"^ *def (test_\w+)\(", re.MULTILINE)
COMMENT = re.compile(r"^ *(//|#|@)")


def comment_above(text, position):
    """The lines of comment, or of decorators, directly above what begins at `position`."""
    lines = []
    for line in reversed(text[:position].splitlines()):
        if not COMMENT.match(line):
            break
        lines.append(line)
    return "\n".join(lines)


def tests_in(files):
    """What each test says of itself: {name: name and comment}. `files`: {path: text}."""
    tests = {}
    for path, text in files.items():
        if path.endswith(".cc"):
            for found in CPP_TEST.finditer(text):
                name = f"{found[1]}.{found[2]}"
                tests[name] = name + "\n" + comment_above(text, found.start())
        elif path.endswith(".py"):
            for found in PYTHON_TEST.finditer(text):
                name = f"{pathlib.PurePath(path).name}::{found[1]}"
                tests[name] = name + "\n" + comment_above(text, found.start())
    return tests


def faults_of(page, files):
    """What is wrong between the page and the tests, one sentence each."""
    tests = tests_in(files)
    rows = {found[1]: (found[2], found[3]) for found in ROW.finditer(page)}
    faults = []
    for letter, (count, needed) in IDS.items():
        for identifier in (f"{letter}{number}" for number in range(1, count + 1)):
            if identifier not in rows:
                faults.append(f"{identifier} has no row")
                continue
            names = re.findall(r"`([^`]+)`", rows[identifier][1])
            if not names and needed:
                faults.append(f"{identifier} has no test")
            for name in names:
                if name not in tests:
                    faults.append(f"{identifier}: {name} is not in the sources")
                elif not re.search(rf"(?<![A-Za-z0-9]){identifier}(?![0-9])", tests[name]):
                    faults.append(f"{identifier}: {name} does not carry the id")
    for identifier in rows:
        if identifier[0] not in IDS or int(identifier[1:]) > IDS[identifier[0]][0]:
            faults.append(f"{identifier} is no requirement")
    return faults


class TheChecker(unittest.TestCase):
    PAGE = "\n".join(f"| {letter}{number} | what | `Suite.Case` |"
                     for letter, (count, _) in IDS.items() for number in range(1, count + 1))
    FILES = {"a_test.cc": "// " + ", ".join(f"{letter}{number}" for letter, (count, _) in IDS.items()
                                            for number in range(1, count + 1)) + "\nTEST(Suite, Case) {\n}\n"}

    def faults(self, old="", new="", files=None):
        return faults_of(self.PAGE.replace(old, new, 1), files or self.FILES)

    def test_accepts_what_is_complete(self):
        self.assertEqual(self.faults(), [])

    def test_an_id_without_a_test_fails(self):
        self.assertEqual(self.faults("| A3 | what | `Suite.Case` |", "| A3 | what | – |"), ["A3 has no test"])
        self.assertEqual(self.faults("| D10 | what | `Suite.Case` |\n"), ["D10 has no row"])
        self.assertEqual(self.faults("| G8 | what | `Suite.Case` |", "| G8 | what | – |"), [])

    def test_a_test_that_does_not_exist_fails(self):
        self.assertEqual(self.faults("| B2 | what | `Suite.Case` |", "| B2 | what | `Suite.Gone`, `x_test.py::test_y` |"),
                         ["B2: Suite.Gone is not in the sources", "B2: x_test.py::test_y is not in the sources"])

    def test_a_test_that_does_not_carry_the_id_fails(self):
        files = {**self.FILES, "b_test.cc": "// D11\n\nTEST_F(Other,\n       Case) {}\n",
                 "c_test.py": "# D1\n@decorated\ndef test_c():\n    pass\n"}
        page = "| D1 | what | `Suite.Case`, `Other.Case`, `c_test.py::test_c` |"
        self.assertEqual(self.faults("| D1 | what | `Suite.Case` |", page, files),
                         ["D1: Other.Case does not carry the id"])
        files["b_test.cc"] = "// D11 is another one.\nTEST_F(Other, Case) {}\n"
        self.assertEqual(self.faults("| D1 | what | `Suite.Case` |", page, files),
                         ["D1: Other.Case does not carry the id"])

    def test_an_unknown_id_fails(self):
        self.assertEqual(self.faults("| A1 |", "| F5 | what | – |\n| A1 |"), ["F5 is no requirement"])


class TheRepository(unittest.TestCase):
    def test_every_requirement_has_its_tests(self):
        files = {str(path.relative_to(ROOT)): path.read_text()
                 for path in (ROOT / "tests").rglob("*") if path.suffix in (".cc", ".py")}
        page = (ROOT / "docs" / "requirements.md").read_text()
        self.assertEqual(faults_of(page, files), [])

    # H1
    def test_nothing_names_the_former_cache_keys(self):
        for path in (ROOT / "src").rglob("*"):
            if path.suffix in (".cc", ".h") and "sim" not in path.relative_to(ROOT / "src").parts:
                text = path.read_text()
                self.assertNotIn('"XLLM:CACHE', text, path)
                self.assertNotIn('"cache_event', text, path)


if __name__ == "__main__":
    sys.exit(unittest.main())
