// What makes the pages handier. Everything works without it.

"use strict";

const MICROSECONDS = 1e6;

/** Shows the copy buttons, and copies the text that each stands beside. */
function addCopying() {
  if (!navigator.clipboard) return;
  for (const button of document.querySelectorAll("button.copy")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.parentElement.querySelector("code").textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }
}

/** Puts a suggestion into its field at once, without asking the service first. */
function addSuggestions() {
  for (const button of document.querySelectorAll('button[name="use"]')) {
    button.addEventListener("click", (event) => {
      const [name, ...rest] = button.value.split("=");
      const input = document.getElementById(name);
      if (!input) return;
      event.preventDefault();
      input.value = rest.join("=");
      input.removeAttribute("aria-invalid");
      input.closest(".wrong")?.classList.remove("wrong");
      button.closest(".faults").remove();
      input.focus();
    });
  }
}

/** Reads a chosen file into its text field, where it can be looked at and changed. */
function addUploads() {
  const chooser = document.getElementById("model_file");
  chooser?.addEventListener("change", async () => {
    const [file] = chooser.files;
    if (!file) return;
    document.getElementById("model_config").value = await file.text();
    chooser.value = "";
  });
}

/** Keeps a page that waits for a search up to date, and shows the plan once it is there. */
function addPolling() {
  const waiting = document.querySelector("[data-poll]");
  if (!waiting) return;
  setTimeout(async () => {
    try {
      const response = await fetch(location.href, { headers: { Accept: "text/html" } });
      const page = new DOMParser().parseFromString(await response.text(), "text/html");
      if (!page.querySelector("[data-poll]")) return location.reload();
      document.getElementById("main").replaceChildren(...page.getElementById("main").children);
    } catch {
      // The service is away for a moment: ask again.
    }
    addPolling();
  }, Number(waiting.dataset.poll));
}

/** Adds zoom and tooltips to the timeline. */
function addTimeline() {
  const timeline = document.querySelector(".timeline");
  if (!timeline) return;
  addZoom(timeline);
  addTooltips(timeline);
}

function addZoom(timeline) {
  const drawing = timeline.querySelector(".drawing");
  const scroller = timeline.querySelector(".scroll");
  document.querySelector(".zoom").hidden = false;
  for (const button of document.querySelectorAll("[data-zoom-by]")) {
    button.addEventListener("click", () => {
      const before = Number(timeline.dataset.zoom);
      const zoom = Math.min(8, Math.max(1, before * Number(button.dataset.zoomBy)));
      const middle = (scroller.scrollLeft + scroller.clientWidth / 2) / before;
      timeline.dataset.zoom = zoom;
      drawing.setAttribute("width", `${100 * zoom}%`);
      scroller.scrollLeft = middle * zoom - scroller.clientWidth / 2;
    });
  }
}

function addTooltips(timeline) {
  const drawing = timeline.querySelector(".drawing");
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  document.body.append(tip);
  let stages = null;
  let isAsked = false;
  drawing.addEventListener("pointerenter", async () => {
    if (isAsked) return;
    isAsked = true;
    const response = await fetch(timeline.dataset.trace);
    if (response.ok) stages = eventsByStage((await response.json()).traceEvents);
  });
  drawing.addEventListener("pointerleave", () => { tip.hidden = true; });
  drawing.addEventListener("pointermove", (pointer) => {
    const found = stages && eventUnder(pointer, drawing, stages);
    tip.hidden = !found;
    if (!found) return;
    tip.textContent = describe(found);
    tip.style.left = `${Math.min(pointer.clientX + 12, innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${pointer.clientY + 16}px`;
  });
}

function eventsByStage(events) {
  const stages = new Map();
  for (const event of events) {
    if (event.ph !== "X") continue;
    if (!stages.has(event.tid)) stages.set(event.tid, []);
    stages.get(event.tid).push(event);
  }
  return stages;
}

function eventUnder(pointer, drawing, stages) {
  const box = drawing.getBoundingClientRect();
  const percent = (100 * (pointer.clientX - box.left)) / box.width;
  const stage = Math.floor((pointer.clientY - box.top) / Number(drawing.dataset.pitch));
  for (const { dataset } of drawing.querySelectorAll(".span")) {
    const [left, right, start, end] = ["left", "right", "start", "end"].map((key) => Number(dataset[key]));
    if (percent < left || percent > right) continue;
    const moment = MICROSECONDS * (start + ((end - start) * (percent - left)) / (right - left));
    return stages.get(stage)?.find((event) => event.ts <= moment && moment < event.ts + event.dur);
  }
  return null;
}

function describe(event) {
  const { micro_batch: microBatch, virtual_stage: chunk } = event.args;
  const parts = [`stage ${event.tid}`, event.cat];
  if (event.cat === "forward" || event.cat === "backward") parts.push(`micro-batch ${microBatch}`, `chunk ${chunk}`);
  const start = (event.ts / MICROSECONDS).toPrecision(5);
  parts.push(`at ${start} s`, `${(event.dur / 1000).toPrecision(4)} ms`);
  return parts.join(" · ");
}

addCopying();
addSuggestions();
addUploads();
addPolling();
addTimeline();
