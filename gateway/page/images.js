// The images that go with the next message: chosen, dropped or pasted.
import { element, find, problem } from "./dom.js";

let images = []; // { name, type, url, picture }

const read = (file) => new Promise((done, fail) => {
  const reader = new FileReader();
  reader.onload = () => done(reader.result);
  reader.onerror = () => fail(reader.error);
  reader.readAsDataURL(file);
});

async function add(file) {
  const url = await read(file);
  const picture = element("img", { src: url, alt: file.name });
  try {
    await picture.decode();
  } catch {
    problem(`${file.name}: not an image that this browser can read`);
    return;
  }
  problem("");
  const image = { name: file.name, type: file.type, url, picture };
  const item = element("li", {}, picture, element("button", {
    type: "button", ariaLabel: `Remove ${file.name}`,
    onclick: () => {
      images = images.filter((i) => i !== image);
      item.remove();
      find("text").focus();
    },
  }, "\u00d7"));
  images.push(image);
  find("pictures").append(item);
}

async function addAll(files) {
  for (const file of [...files]) await add(file);
}

// Gives the images away; none is left.
export function takeImages() {
  const taken = images;
  images = [];
  find("pictures").replaceChildren();
  return taken;
}

find("choose").onclick = () => find("file").click();
find("file").onchange = async (e) => {
  await addAll(e.target.files);
  e.target.value = ""; // the same file may be chosen again
};
find("example").onclick = async () => {
  const blob = await (await fetch("example.png")).blob();
  await add(new File([blob], "example.png", { type: "image/png" }));
  find("text").value ||= "Name the color of the square.";
  find("text").focus();
};
document.addEventListener("paste", (e) => addAll(e.clipboardData.files));
document.addEventListener("dragover", (e) => {
  e.preventDefault();
  find("form").classList.add("over");
});
document.addEventListener("dragleave", () => find("form").classList.remove("over"));
document.addEventListener("drop", (e) => {
  e.preventDefault();
  find("form").classList.remove("over");
  addAll(e.dataTransfer.files);
});
