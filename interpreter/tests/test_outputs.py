"""Translation of messages, without a kernel."""

import unittest

from sandlane_interpreter import outputs


def message(kind, **content):
    return {"header": {"msg_type": kind, "date": "2026-01-02T03:04:05.000006Z"}, "content": content}


class OutputsTest(unittest.TestCase):
    def test_lines(self):
        for got, want in (
            (message("stream", name="stderr", text="x"), {"type": "stderr", "text": "x", "timestamp": 1767323045000006000}),
            (message("execute_input", execution_count=3, code=""), {"type": "number_of_executions", "execution_count": 3}),
            (message("error", ename="E", evalue="v", traceback=["a", "b"]), {"type": "error", "name": "E", "value": "v", "traceback": "a\nb"}),
            (
                message("display_data", data={"image/png": "p", "x/y": 1}),
                {"type": "result", "is_main_result": False, "png": "p", "extra": {"x/y": 1}},
            ),
            (message("execute_result", data={"text/plain": "'it'"}), {"type": "result", "is_main_result": True, "text": "it"}),
            (message("execute_result", data={"text/plain": 5}), {"type": "result", "is_main_result": True, "text": "5"}),
            (message("comm_msg", data={}), None),
        ):
            self.assertEqual(outputs.line(got), want)

    def test_a_line_is_one_line(self):
        self.assertEqual(outputs.encode({"type": "stdout", "text": "a\nb"}).count(b"\n"), 1)


if __name__ == "__main__":
    unittest.main()
