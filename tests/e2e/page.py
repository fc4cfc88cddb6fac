"""The gateway's page in headless Chromium.

usage: page.py HOST:PORT PICTURE [SCREENSHOT_FOLDER]; with a folder all cases, else the first; 77 without chromedriver
"""
import base64
import json
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from browser import ENTER, ESCAPE, WAIT_S, Browser  # exits with 77 without chromedriver

address, picture_path, *folder = sys.argv[1:]


def open_page():
    b.open(f"http://{address}/")
    b.wait("the page is ready", "document.documentElement.dataset.ready === 'yes'")


def screenshot(name):
    b.screenshot(f"{folder[0]}/{name}.png")


def policies(*texts):
    while b.run("return document.querySelectorAll('#policies li').length") > len(texts):
        b.click("#policies li:last-child button:last-child")
    while b.run("return document.querySelectorAll('#policies li').length") < len(texts):
        b.click("#add")
    for i, text in enumerate(texts):
        b.fill(f"#policies li:nth-child({i + 1}) input", text)


def answered():
    b.wait("all answers", "document.querySelectorAll('article').length && document.getElementById('stop').disabled")


def ask(text, new=True):
    """Sends a message, in a new chat or as the next turn, and waits for its answers."""
    if new:
        b.click("#new")
    b.fill("#text", text)
    b.click("#ask")
    answered()


def turns():
    return b.run("""return [...document.querySelectorAll('.turn')].map(t => ({
        question: t.querySelector('.user p').textContent, pictures: t.querySelectorAll('.user img').length,
        answers: [...t.querySelectorAll('article .answer')].map(a => a.textContent),
        errors: [...t.querySelectorAll('article .error')].map(a => a.textContent),
        again: !t.querySelector('.again').hidden}))""")


def drop(path):
    """Drops the file on the page, as from a file manager, and it is the only image then."""
    b.run("document.querySelectorAll('#pictures button').forEach(x => x.click())")
    with open(path, "rb") as f:
        data = base64.b64encode(f.read()).decode()
    b.run("""const bytes = Uint8Array.from(atob(arguments[0]), c => c.charCodeAt(0)), d = new DataTransfer();
             d.items.add(new File([bytes], 'dropped.png', {type: 'image/png'}));
             document.getElementById('form').dispatchEvent(new DragEvent('drop', {dataTransfer: d, bubbles: true, cancelable: true}))""", data)
    b.wait("the image", "document.querySelectorAll('#pictures img').length === 1")


def two_policies_side_by_side():
    open_page()
    drop(picture_path)
    b.fill("#tokens", "12")
    policies("exact", "prune=vtw,layer=6")
    b.fill("#text", "Name the color of the square.")
    b.click("#ask")
    answered()
    assert b.run("return document.querySelectorAll('article .overlay canvas').length") == 2, b.text("#turns")
    assert not b.text("article .error"), b.text("#turns")
    for i in 1, 2:
        assert "sent" in b.text(f"article:nth-child({i}) .costs summary"), b.text("#turns")
        b.run("document.querySelector(`article:nth-child(${arguments[0]}) .costs`).open = true", i)
        words = b.text(f"article:nth-child({i}) dl")
        assert "KV sent" in words and "KV held" in words and "time to first token" in words and "time per token" in words, words
    # after layer 6 the second answer holds none of the image's tokens, and its picture is dark there; it opens there
    opens = b.run("return [...document.querySelectorAll('article input[type=range]')].map(s => s.value)")
    assert opens == ["0", "6"], opens
    light = []
    for layer in "0", "11":
        light.append(b.run("""const a = document.querySelector('article:nth-child(2)'), s = a.querySelector('input[type=range]');
            s.value = arguments[0]; s.dispatchEvent(new Event('input'));
            const c = a.querySelector('canvas'), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
            return d.reduce((n, v, i) => n + (i % 4 < 3 ? v : 0), 0) / d.length""", layer))
    assert light[0] > 3 * light[1], light
    assert ": 0 of 144" in b.text("article:nth-child(2) figcaption")
    assert "prune=vtw" in b.run("return document.querySelector('article:nth-child(2) pre').textContent")
    assert "decode" in b.text("#fleet")
    assert not b.complaints(), b.complaints()


def a_chat_goes_on_under_each_policy():
    """Each policy sees its own answers, and the image of the first turn."""
    b.run("""window.sent = []; window.plain = window.plain ?? window.fetch;
             window.fetch = (path, o) => { if (o?.method) window.sent.push(JSON.parse(o.body)); return window.plain(path, o); }""")
    policies("exact", "prune=vtw,layer=1")
    drop(picture_path)
    ask("Describe the picture.")
    ask("Name the color of the square.", new=False)
    said = turns()
    assert [t["question"] for t in said] == ["Describe the picture.", "Name the color of the square."] and not said[1]["errors"], said
    assert [t["pictures"] for t in said] == [1, 0] and [t["again"] for t in said] == [False, True], said
    assert said[0]["answers"][0] != said[0]["answers"][1], said
    sent = {m["policy"]: m["messages"] for m in b.run("return window.sent.slice(2)")}
    for i, policy in enumerate(("exact", "prune=vtw,layer=1")):
        roles = [m["role"] for m in sent[policy]]
        assert roles == ["user", "assistant", "user"] and sent[policy][1]["content"] == said[0]["answers"][i], (sent[policy][1], said)
        assert sent[policy][0]["content"][0]["type"] == "image_url" and sent[policy][2]["content"][0]["type"] == "text"
    b.click(".turn:last-child .again")
    answered()
    assert turns() == said, "the same question has the same answer at temperature 0"
    screenshot("chat")
    b.click("#new")
    assert not turns() and b.run("return document.activeElement.id") == "text"
    b.run("window.fetch = window.plain")


def a_turn_that_failed_is_left_out():
    policies("prune=magic")
    ask("Is it red?")
    assert turns()[0]["errors"] and not turns()[0]["answers"][0], turns()
    policies("exact")
    ask("Is it blue?", new=False)
    assert not turns()[1]["errors"] and turns()[1]["answers"][0], turns()


def an_answer_can_be_stopped():
    policies("exact")
    b.fill("#tokens", "1500")
    b.click("#new")
    # answers of this model are short: what comes is held back until the stop
    b.run("""window.plain = window.plain ?? window.fetch;
             window.fetch = async (path, o) => {
                 const r = await window.plain(path, o);
                 if (!o?.method) return r;
                 const first = new TextEncoder().encode('data: {"choices": [{"delta": {"content": "so far"}}]}\\n');
                 const body = new ReadableStream({ start(c) { c.enqueue(first); o.signal.addEventListener('abort', () => c.error(o.signal.reason)); } });
                 return new Response(body, { status: 200 });
             }""")
    b.fill("#text", "Describe it.")
    b.type("#text", ENTER)
    b.wait("the beginning", "document.querySelector('.answer')?.textContent === 'so far'")
    b.type("#text", ESCAPE)
    b.wait("the note", "document.querySelector('article .note')?.textContent === 'stopped'")
    answered()
    assert turns()[0]["answers"] == ["so far"] and not turns()[0]["errors"] and turns()[0]["again"], turns()
    b.run("window.fetch = window.plain")
    b.fill("#tokens", "12")


def differences_are_marked():
    drop(picture_path)
    policies("exact", "prune=vtw,layer=1", "exact")
    ask("Describe the picture.")
    texts = [b.text(f"article:nth-child({i}) .answer") for i in (1, 2, 3)]
    assert texts[0] == texts[2] and texts[0] != texts[1], texts
    marks = [b.run("return document.querySelectorAll(`article:nth-child(${arguments[0]}) mark`).length", i) for i in (1, 2, 3)]
    assert marks[0] == marks[2] == 0 < marks[1], marks


def a_policy_is_built_from_the_table():
    policies("exact", "quality")
    b.click("#policies li:nth-child(2) button")
    b.wait("the dialog", "document.getElementById('builder').open")
    assert "pack=svd" in b.text("#built")
    order = b.run("return [...document.querySelectorAll('#from option')].map(o => o.value)")
    assert order[0] == "exact" and order.index("aggressive") < order.index("quality"), order  # by what they send
    b.run("""const s = document.querySelector('#stages [aria-label=evict]'); s.value = 'tova'; s.dispatchEvent(new Event('change'))""")
    assert "evict=tova" in b.text("#built")
    b.run("""const s = document.querySelector('#stages [aria-label=lazy]'); s.selectedIndex = 1; s.dispatchEvent(new Event('change'))""")
    assert "exclude each other" in b.text("#conflicts") and b.run("return document.getElementById('use').disabled")
    b.size(1280, 900)
    screenshot("builder")
    for stage in "lazy", "pack":
        b.run("const s = document.querySelector(`#stages [aria-label=${arguments[0]}]`); s.value = ''; s.dispatchEvent(new Event('change'))", stage)
    b.fill("#stages fieldset label input[type=number]", "0.5")
    b.click("#use")
    b.wait("the text", "document.querySelector('#policies li:nth-child(2) input').value === 'evict=tova,keep=0.5'")
    ask("Is it red?")
    assert "evict=tova,keep=0.5" in b.run("return document.querySelector('article:nth-child(2) pre').textContent")


def several_images_go_together():
    b.click("#new")
    drop(picture_path)
    b.click("#example")
    b.wait("both images", "document.querySelectorAll('#pictures img').length === 2")
    policies("prune=vtw,layer=6")
    b.fill("#tokens", "2")
    b.click("#ask")
    answered()
    assert not b.text("article .error"), b.text("#turns")
    assert b.run("return document.querySelectorAll('article .overlay canvas').length") == 2
    b.run("const s = document.querySelector('article input[type=range]'); s.value = '0'; s.dispatchEvent(new Event('input'))")
    assert "288 of 288" in b.text("article figcaption"), b.text("article figcaption")
    b.run("const s = document.querySelector('article input[type=range]'); s.value = '11'; s.dispatchEvent(new Event('input'))")
    assert "0 of 288" in b.text("article figcaption"), b.text("article figcaption")
    screenshot("images")
    shutil.copyfile(picture_path, f"{folder[0]}/dropped.png")
    the_calls_elsewhere_work(2)


def files_that_the_browser_cannot_show_are_sent_too():
    """A HEIC picture and a video without a media type: their bytes decide, and their names are shown."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fuzz", "corpus", "still", "420.heic"), "rb") as f:
        still = base64.b64encode(f.read()).decode()
    b.click("#new")
    b.run("document.querySelectorAll('#pictures button').forEach(x => x.click())")
    b.run("""window.sent = []; window.plain = window.plain ?? window.fetch;
             window.fetch = (path, o) => { if (o?.method) window.sent.push(JSON.parse(o.body)); return window.plain(path, o); }
             const bytes = text => Uint8Array.from(atob(text), c => c.charCodeAt(0)), d = new DataTransfer();
             d.items.add(new File([bytes(arguments[0])], 'a.heic'));
             d.items.add(new File([bytes('GkXfowAAAAAAAAAAAAAAAAAAAAA=')], 'b.mkv'));
             document.dispatchEvent(new DragEvent('drop', {dataTransfer: d, cancelable: true}))""", still)
    b.wait("both names", "document.querySelectorAll('#pictures .file').length === 2")
    policies("exact")
    ask("What is it?", new=False)
    (body,) = b.run("return window.sent")
    parts = body["messages"][0]["content"]
    assert [p["type"] for p in parts] == ["image_url", "video_url", "text"] and not body["kept_tokens"], parts
    assert parts[0]["image_url"]["url"].startswith("data:image/heic;base64,") and parts[1]["video_url"]["url"].startswith("data:video/webm;base64,"), parts
    assert b.run("return [...document.querySelectorAll('.user .file')].map(e => e.textContent)") == ["a.heic", "b.mkv"]
    assert "video" in turns()[0]["errors"][0], turns()  # this one is damaged
    b.run("window.fetch = window.plain")


def mistakes_are_shown_as_text():
    policies("prune=magic")
    ask("Is it red?")
    assert "magic" in b.text("article .error")
    policies("exact")
    b.run("""const d = new DataTransfer(); d.items.add(new File(['<b>no</b>'], '<b>x</b>.png', {type: 'image/png'}));
             document.dispatchEvent(new DragEvent('drop', {dataTransfer: d, cancelable: true}))""")
    b.wait("a sentence", "!document.getElementById('problem').hidden")
    assert "<b>x</b>.png: not an image" in b.text("#problem")


def it_works_by_keyboard():
    open_page()
    b.click("#example")
    b.wait("the image", "document.querySelectorAll('#pictures img').length === 1")
    b.fill("#tokens", "2")
    b.type("#text", "\ue009" + ENTER)  # with Control
    answered()
    reached = b.run("""return [...document.querySelectorAll('a[href], button, input, select, textarea, summary')].every(e => e.tabIndex >= 0)""")
    b.run("document.querySelector('article .costs').open = true")
    assert reached and "KV held" in b.text("article dl")
    assert b.run("return document.activeElement.id") == "text" and not b.run("return document.getElementById('text').value")


def the_calls_elsewhere_work(n=1):
    script = b.run("return [...document.querySelectorAll('article:first-child pre')].find(d => d.textContent.includes('curl')).textContent")
    if not shutil.which("curl"):
        return
    shutil.copyfile(picture_path, f"{folder[0]}/example.png")
    said = subprocess.run(["bash", "-c", script], cwd=folder[0], capture_output=True, text=True, timeout=WAIT_S)
    assert json.loads(said.stdout)["choices"][0]["fovea"]["report"]["n_images"] == n, said


def it_fits_narrow_and_wide_dark_and_light():
    b.run("document.querySelectorAll('article details').forEach(d => d.open = true)")
    for width in 375, 1920:
        for scheme in "light", "dark":
            b.size(width, 900)
            b.media("prefers-color-scheme", scheme)
            over = b.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert over <= 0, f"{width}: {over} pixels too wide"
            screenshot(f"{width}-{scheme}")
    colors = []
    for scheme in "light", "dark":
        b.media("prefers-color-scheme", scheme)
        colors.append(b.run("return getComputedStyle(document.body).backgroundColor"))
    assert colors[0] != colors[1]


def a_key_is_forgotten_with_the_session():
    b.fill("#key", "secret\ue004")
    assert b.run("return sessionStorage.getItem('key')") == "secret" and b.run("return localStorage.length + document.cookie.length") == 0


cases = [two_policies_side_by_side]
if folder:
    cases += [a_chat_goes_on_under_each_policy, a_turn_that_failed_is_left_out, an_answer_can_be_stopped, differences_are_marked, a_policy_is_built_from_the_table, several_images_go_together, files_that_the_browser_cannot_show_are_sent_too, mistakes_are_shown_as_text, it_works_by_keyboard,
              the_calls_elsewhere_work, it_fits_narrow_and_wide_dark_and_light, a_key_is_forgotten_with_the_session]
b = None
try:
    b = Browser()
    for case in cases:
        print(case.__name__, flush=True)
        case()
finally:
    if b:
        b.close()
print("ok")
