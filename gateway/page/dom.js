// An element with properties and children; text is inserted as text.
export function element(name, properties = {}, ...children) {
  const e = Object.assign(document.createElement(name), properties);
  e.append(...children);
  return e;
}

export const find = (id) => document.getElementById(id);

// Shows what went wrong, above everything; "": nothing.
export function problem(text) {
  find("problem").textContent = text;
  find("problem").hidden = !text;
}

// A button that copies a text, or what a function returns then.
export function copyButton(text) {
  const button = element("button", { type: "button", className: "copy" }, "Copy");
  button.onclick = async () => {
    try {
      await navigator.clipboard.writeText(typeof text === "function" ? text() : text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select the text and copy it";
    }
  };
  return button;
}

export const bytes = (n) => (n < 1024 ? `${n} B` : n < 1 << 20 ? `${(n / 1024).toFixed(1)} KiB` : n < 2 ** 30 ? `${(n / 2 ** 20).toFixed(1)} MiB` : `${(n / 2 ** 30).toFixed(1)} GiB`);
