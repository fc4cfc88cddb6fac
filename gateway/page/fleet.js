// Shows the workers; refreshes every two seconds while they can be seen.
import { ask } from "./api.js";
import { bytes, element, find } from "./dom.js";

const word = (name) => name.replace(/^(ROLE|WORKER_STATE)_/, "").toLowerCase();

function row(worker) {
  const load = worker.load ?? {};
  const used = (load.bytes_held ?? 0) + (load.bytes_granted ?? 0);
  const kv = load.bytes_capacity ? `${bytes(used)} of ${bytes(load.bytes_capacity)}` : bytes(used);
  const bar = load.bytes_capacity ? [element("meter", { max: load.bytes_capacity, value: used, title: kv }), " "] : [];
  return element("tr", {},
    element("th", { scope: "row" }, `${word(worker.role)} ${worker.model ?? ""}`),
    element("td", {}, word(worker.state)),
    element("td", {}, String(load.n_running ?? 0)),
    element("td", {}, String(load.n_queued ?? 0)),
    element("td", {}, ...bar, kv));
}

export async function showFleet() {
  if (document.hidden || !find("fleet-part").open) return;
  try {
    const fleet = await ask("fovea/fleet");
    const wait = fleet.seconds_queue ? `, expected wait ${fleet.seconds_queue.toFixed(1)} s` : "";
    find("fleet-now").textContent = `${fleet.n_running ?? 0} running, ${fleet.n_queued ?? 0} queued${wait}`;
    find("fleet").tBodies[0].replaceChildren(...(fleet.workers ?? []).map(row));
  } catch (e) {
    find("fleet-now").textContent = e.message;
  }
}
