// The conversation: messages of the user, each followed by one answer per policy.
import { answer } from "./answer.js";
import { copyButton, element, find } from "./dom.js";
import { isVideo, thumbnail } from "./images.js";

let turns = []; // { text, images, answers: [{ policy, text }], cards, again }
let stopping = null;

// What a policy has answered; a policy that was added later goes on with the first answer.
const said = (turn, policy) => (turn.answers.find((a) => a.policy === policy && a.text) ?? turn.answers.find((a) => a.text))?.text;

const part = (i) => (isVideo(i) ? { type: "video_url", video_url: { url: i.url } } : { type: "image_url", image_url: { url: i.url } });

const user = (turn) => ({
  role: "user",
  content: [...turn.images.map(part), { type: "text", text: turn.text }],
});

// The turns before this one that were answered; the others are left out.
const before = (turn) => turns.slice(0, turns.indexOf(turn)).filter((t) => t.answers.some((a) => a.text));

const messages = (turn, policy) => [...before(turn).flatMap((t) => [user(t), { role: "assistant", content: said(t, policy) }]), user(turn)];

// Answers a turn under each policy, at the same time. settings: a body without messages.
async function run(turn, settings, policies, model) {
  stop();
  const mine = (stopping = new AbortController());
  const images = [...before(turn), turn].flatMap((t) => t.images);
  const answers = policies.map((p) => answer(p, { ...settings, messages: messages(turn, p) }, images, model, mine.signal));
  find("stop").disabled = false;
  turn.again.hidden = true;
  turn.cards.replaceChildren(...answers.map((a) => a.card));
  turn.cards.ariaBusy = "true";
  const texts = await Promise.all(answers.map((a) => a.done));
  turn.answers = policies.map((policy, i) => ({ policy, text: texts[i] }));
  texts.slice(1).forEach((text, i) => text && texts[0] && answers[i + 1].compare(texts[0]));
  turn.cards.ariaBusy = "false";
  if (stopping !== mine) return;
  find("stop").disabled = true;
  turn.again.hidden = turn !== turns.at(-1);
}

export function stop() {
  stopping?.abort();
}

export function newChat() {
  stop();
  stopping = null;
  turns = [];
  find("turns").replaceChildren();
  find("hint").hidden = false;
  find("stop").disabled = true;
}

// Adds a message and answers it. how(again) gives { settings, policies, model } as they are set then.
export function send(text, images, how) {
  const turn = { text, images, answers: [], cards: element("div", { className: "answers" }) };
  const start = (again) => {
    const { settings, policies, model } = how(again);
    return run(turn, settings, policies, model);
  };
  turn.again = element("button", { type: "button", className: "again", hidden: true, onclick: () => start(true) }, "Regenerate");
  for (const earlier of turns) earlier.again.hidden = true;
  turns.push(turn);
  find("hint").hidden = true;
  const question = element("div", { className: "user" }, element("div", { className: "pictures" }, ...images.map(thumbnail)), element("p", {}, text), copyButton(text));
  const view = element("section", { className: "turn", ariaLabel: `Turn ${turns.length}` }, question, turn.cards, turn.again);
  find("turns").append(view);
  view.scrollIntoView({ block: "start" });
  return start(false);
}
