// The seat map as a live page: seats change while one looks, holds run out by the second, and nothing is reloaded.
// Every act is one of the page's own forms, sent in the background; without this file they are sent as ever.
"use strict";

const live = document.getElementById("live");
const holdForm = document.getElementById("hold");
const LAST_MS = 60000;

const parsed = (text) => new DOMParser().parseFromString(text, "text/html");
const seatsOf = (map) => map.querySelectorAll("[data-seat]");
const freeSeats = () => [...document.querySelectorAll("#map a[data-seat]")];

function announce(words) {
  document.getElementById("said").textContent = words;
}

function tell(words, kind) {
  const said = document.createElement("p");
  said.className = `message ${kind}`;
  said.textContent = words;
  document.getElementById("messages").replaceChildren(said);
}

// -- What is shown ------------------------------------------------------------------------------------------------------

// Put in what changed, and nothing else: a button that is replaced under a finger loses its click.
function show(page) {
  for (const fresh of page.querySelectorAll("[data-tag]")) {
    const old = document.getElementById(fresh.id);
    if (old.dataset.tag === fresh.dataset.tag) continue;
    const focused = old.contains(document.activeElement) ? document.activeElement : null;
    if (fresh.id !== "map" || !redraw(old, fresh)) old.replaceWith(fresh);
    if (focused && !focused.isConnected) refocus(focused);
  }
  settle();
}

// Change single seats in the drawing that is there; false if it is not the same hall.
function redraw(map, fresh) {
  const [old, now] = [[...seatsOf(map)], [...seatsOf(fresh)]];
  if (!old.length || old.length !== now.length || old.some((seat, at) => seat.dataset.seat !== now[at].dataset.seat)) return false;
  old.forEach((seat, at) => seat.dataset.state !== now[at].dataset.state && seat.replaceWith(now[at]));
  for (const count of map.querySelectorAll("[data-count]")) {
    count.textContent = fresh.querySelector(`[data-count="${count.dataset.count}"]`).textContent;
  }
  map.dataset.tag = fresh.dataset.tag;
  return true;
}

// Where the reader was is gone: the same thing anew, else the nearest free seat, else the list.
function refocus(gone) {
  const again = gone.id && document.getElementById(gone.id);
  const seat = gone.dataset.seat && nearest(gone, freeSeats(), () => true);
  (again || seat || document.getElementById("mine-title")).focus({ preventScroll: true });
}

// After each change: mark one's own seats, take back what is true no longer, keep one stop for the Tab key in the map, start
// the clocks.
function settle() {
  const mine = new Set([...document.querySelectorAll("#mine li[data-seat]")].map((item) => item.dataset.seat));
  for (const seat of seatsOf(document.getElementById("map"))) seat.classList.toggle("mine", mine.has(seat.dataset.seat));
  for (const said of document.querySelectorAll("#messages [data-holds]")) {
    if (!document.querySelector(`#mine li[data-seat="${said.dataset.holds}"] .held`)) said.closest(".message").remove();
  }
  const free = freeSeats();
  const stop = free.find((seat) => seat === document.activeElement) || free.find((seat) => seat.tabIndex === 0 && seat.hasAttribute("tabindex")) || free[0];
  for (const seat of free) seat.setAttribute("tabindex", seat === stop ? "0" : "-1");
  for (const clock of document.querySelectorAll("[data-left-ms]")) {
    clock.dataset.endsAt = Date.now() + Number(clock.dataset.leftMs);
    delete clock.dataset.leftMs;
  }
  tick();
}

// -- Clocks -------------------------------------------------------------------------------------------------------------

// By what was left when the site said so: this machine's clock may be minutes off, but it goes on while a laptop sleeps.
function tick() {
  for (const clock of document.querySelectorAll("[data-ends-at]")) {
    const leftMs = Math.max(0, Number(clock.dataset.endsAt) - Date.now());
    const seconds = Math.ceil(leftMs / 1000);
    clock.textContent = leftMs ? `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")} left` : "run out";
    if (leftMs < LAST_MS && !clock.classList.contains("short")) {
      clock.classList.add("short");
      announce(`Less than a minute left for seat ${clock.closest("li").dataset.seat}.`);
    }
  }
}

// -- What a person does -------------------------------------------------------------------------------------------------

// One after the other, so that two seats clicked in haste are both held, and the last answer is the one that stays.
let sending = Promise.resolve();

function send(form, submitter) {
  const body = new FormData(form, submitter);
  if (submitter) submitter.disabled = true;
  sending = sending.then(() => post(form.action, body)).finally(() => submitter && (submitter.disabled = false));
}

async function post(url, body) {
  try {
    const answer = await fetch(url, { method: "POST", body, signal: AbortSignal.timeout(15000) });
    take(parsed(await answer.text()));
  } catch {
    tell("The site did not answer. What you asked for may not have been done: look at the map before you ask again.", "error");
  }
}

// The answer is a page: this one as it is now, or one that says why not.
function take(page) {
  if (page.getElementById("live")) {
    document.getElementById("messages").replaceChildren(...page.getElementById("messages").childNodes);
    show(page);
  } else {
    tell([...page.querySelectorAll("h1, .lead")].map((line) => line.textContent).join(". "), "error");
  }
}

function choose(seat) {
  holdForm.elements.seat.value = seat.dataset.seat;
  if (holdForm.elements.holder.value.trim()) return send(holdForm);
  announce(`Seat ${seat.dataset.seat} is chosen. Say who it is for.`);
  holdForm.elements.holder.focus();
}

document.addEventListener("submit", (event) => {
  event.preventDefault();
  send(event.target, event.submitter);
});

live.addEventListener("click", (event) => {
  const seat = event.target.closest("#map a[data-seat]");
  if (!seat) return;
  event.preventDefault();
  choose(seat);
});

// -- Arrow keys on the map ----------------------------------------------------------------------------------------------

const TOWARDS = {
  ArrowLeft: (dx, dy) => dx < -1 && Math.abs(dy) < Math.abs(dx),
  ArrowRight: (dx, dy) => dx > 1 && Math.abs(dy) < Math.abs(dx),
  ArrowUp: (dx, dy) => dy < -1 && Math.abs(dx) <= Math.abs(dy),
  ArrowDown: (dx, dy) => dy > 1 && Math.abs(dx) <= Math.abs(dy),
};

function middle(seat) {
  const circle = seat.querySelector("circle");
  return [Number(circle.getAttribute("cx")), Number(circle.getAttribute("cy"))];
}

function nearest(from, seats, wanted) {
  const [x, y] = middle(from);
  const distance = (seat) => Math.hypot(middle(seat)[0] - x, middle(seat)[1] - y);
  const inSight = seats.filter((seat) => seat !== from && wanted(middle(seat)[0] - x, middle(seat)[1] - y));
  return inSight.sort((one, other) => distance(one) - distance(other))[0];
}

live.addEventListener("keydown", (event) => {
  const seat = event.target.closest("#map a[data-seat]");
  const next = seat && TOWARDS[event.key] && nearest(seat, freeSeats(), TOWARDS[event.key]);
  if (!next) return;
  event.preventDefault();
  seat.setAttribute("tabindex", "-1");
  next.setAttribute("tabindex", "0");
  next.focus();
});

// On a narrow screen the hall opens at its middle.
const map = document.getElementById("map");
map.scrollLeft = (map.scrollWidth - map.clientWidth) / 2;
document.querySelectorAll("[data-scripted]").forEach((hint) => (hint.hidden = false));
settle();
setInterval(tick, 250);
Live.follow(live.dataset.live, async (answer) => {
  if (answer.ok) return show(parsed(await answer.text()));
  tell("This event is no longer here. Reload the page to see what is.", "error");
  return false;
});
