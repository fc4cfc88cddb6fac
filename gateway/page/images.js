// The images and videos that go with the next message: chosen, dropped or pasted.
import { element, find, problem } from "./dom.js";

let images = []; // { name, type, url, picture }; type: the file's media type, by its bytes; picture: null where the browser shows none

// What the gateway reads, by a file's first bytes as Latin-1 text.
const formats = [
  [/^\xff\xd8\xff/, "image/jpeg"], [/^\x89PNG\r\n/, "image/png"], [/^GIF8/, "image/gif"], [/^RIFF....WEBP/s, "image/webp"],
  [/^BM/, "image/bmp"], [/^(II\*\0|MM\0\*|II\+\0|MM\0\+)/, "image/tiff"],
  [/^....ftypavi[fs]/s, "image/avif"], [/^....ftyp(hei[cxms]|hev[cx]|mif1|msf1)/s, "image/heic"],
  [/^....ftyp/s, "video/mp4"], [/^\x1aE\xdf\xa3/, "video/webm"],
];

async function formatOf(file) {
  const first = String.fromCharCode(...new Uint8Array(await file.slice(0, 16).arrayBuffer()));
  return formats.find(([start]) => start.test(first))?.[1];
}

export const isVideo = (image) => image.type.startsWith("video/");

// How a file looks in a message: the picture, or its name where the browser cannot show it.
export const thumbnail = (image) => (image.picture ? element("img", { src: image.url, alt: image.name }) : element("span", { className: "file" }, image.name));

const read = (file) => new Promise((done, fail) => {
  const reader = new FileReader();
  reader.onload = () => done(reader.result);
  reader.onerror = () => fail(reader.error);
  reader.readAsDataURL(file);
});

async function pictureOf(file, type, url) {
  if (type.startsWith("video/")) return null;
  const picture = element("img", { src: url, alt: file.name });
  return picture.decode().then(() => picture, () => null);
}

async function add(file) {
  const type = await formatOf(file);
  if (!type) {
    problem(`${file.name}: not an image or video of a kind that is read here: JPEG, PNG, WebP, GIF, BMP, TIFF, AVIF, HEIC; MP4, MOV, WebM, MKV`);
    return;
  }
  const url = await read(new Blob([file], { type }));
  problem("");
  const image = { name: file.name, type, url, picture: await pictureOf(file, type, url) };
  const item = element("li", {}, thumbnail(image), element("button", {
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
