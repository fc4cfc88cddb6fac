"""gradio's load_chat, unmodified, in a browser: an image and a question, and the next question.

usage: with_gradio.py HOST:PORT PICTURE; exits with 77 without gradio or chromedriver
"""
import os
import sys
import time

from client import QUESTION, base_url, check, name, picture_path, skip_without

try:
    import gradio
    import openai  # noqa: F401, which load_chat needs
except ImportError as e:
    skip_without(e, "gradio")
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "support"))
from browser import ENTER, Browser

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
app = gradio.load_chat(base_url + "/", model=name, token="unused", file_types=["image"])
_, url, _ = app.launch(server_name="127.0.0.1", share=False, prevent_thread_lock=True, quiet=True)
b = Browser()


def ask(text, n):
    """The answer to the n-th question, when it has not grown for a second."""
    b.type("textarea", text)
    b.type("textarea", ENTER)
    said = "[...document.querySelectorAll('.message.bot')].map(e => e.innerText.trim())"
    b.wait(f"answer {n}", f"{said}.length === {n} && {said}[{n - 1}] !== ''")
    before, now = "", b.run("return " + said)[-1]
    while before != now:
        time.sleep(1)
        before, now = now, b.run("return " + said)[-1]
    return now


try:
    b.open(url)
    b.wait("the chat", "!!document.querySelector('textarea') && !!document.querySelector('input[type=file]')")
    b.call(f"/element/{b.find('input[type=file]')}/value", {"text": os.path.abspath(picture_path)})
    b.wait("the image", "!!document.querySelector('.thumbnails img, .thumbnail-item img, .thumbnail-image img')")
    check(ask(QUESTION, 1), "with the image")
    assert ask(QUESTION, 2), "the next turn has no answer"
finally:
    b.close()
    app.close()
