// Sits an exam: keeps each answer in this browser at once and on the site soon after, counts to the bell, hands in, and
// follows the grading. Without it the page is a form that still hands in, but forgets what a crashed browser knew.
"use strict";

(() => {
  const outcome = document.getElementById("outcome");
  const sheet = document.getElementById("sheet");
  const el = (id) => document.getElementById(id);
  const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  const place = `examhall:${outcome.dataset.attempt}`;
  const put = (node, words) => { if (node.textContent !== words) node.textContent = words; };

  // -- the score ------------------------------------------------------------------------------------------------------

  function showState(body) {
    put(el("score"), String(body.score ?? "–"));
    put(el("state"), body.status);
    el("state").className = `state ${body.status}`;
    put(el("says"), body.says);
    return body.status !== "graded";
  }

  function followGrading() {
    outcome.hidden = false;
    Live.follow(outcome.dataset.status, async (answer) => {
      if (!answer.ok) return location.reload();
      return showState(await answer.json());
    });
  }

  // Back from another page, the browser may show this one as it was; what is true stands on the site.
  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
  if (!sheet) {
    forgetHere(); // it was handed in, perhaps elsewhere: nothing is left to keep on this machine
    if (el("state").textContent !== "graded") followGrading();
    return;
  }

  // -- the answers ----------------------------------------------------------------------------------------------------

  const SAVE_AFTER_MS = 400;
  const SLOWEST_MS = 5000;
  // What the site may have: what it last answered for, and what was sent since. Kept with the draft, so that after a crash a
  // draft goes on from there, and does not undo what was written meanwhile on another device.
  let bases = [];
  let version = 0; // counts what was changed here; what is saved up to it need not be saved again
  let savedVersion = 0;
  let saving = false;
  let handedIn = false;

  function answers(form = sheet) {
    const found = {};
    for (const [name, value] of new FormData(form)) {
      if (name.startsWith("answer-")) found[name.slice(7)] = (found[name.slice(7)] ?? "") + value;
    }
    return found;
  }

  function restore(kept) {
    for (const field of sheet.elements) {
      if (!field.name.startsWith("answer-")) continue;
      const given = String(kept[field.name.slice(7)] ?? "");
      if (field.type === "radio" || field.type === "checkbox") field.checked = given.includes(field.value);
      else field.value = given;
    }
  }

  // A browser that keeps nothing (private mode, full disk) still saves on the site.
  function keepHere() { try { localStorage.setItem(place, JSON.stringify({ bases, answers: answers() })); } catch { /* see above */ } }
  function keptHere() { try { return JSON.parse(localStorage.getItem(place)); } catch { return null; } }
  function forgetHere() { try { localStorage.removeItem(place); } catch { /* see above */ } }

  function trouble(words) {
    put(el("trouble"), words);
    el("trouble").hidden = !words;
  }

  // The token is read when it is used: a login in another tab changes it.
  function send(url, body, outlivesPage = false) {
    const cookie = document.cookie.match(/(?:^|; )csrftoken=([^;]+)/);
    const token = cookie ? cookie[1] : sheet.elements.csrfmiddlewaretoken.value;
    const headers = { "Content-Type": "application/json", Accept: "application/json", "X-CSRFToken": token };
    return fetch(url, { method: "POST", headers, body: JSON.stringify(body), keepalive: outlivesPage });
  }

  async function refusal(answer) {
    if (answer.status === 403) return "You are no longer logged in here. What you write is kept: log in again in another tab, and this page goes on.";
    const words = await Live.reason(answer);
    return answer.status >= 500 || answer.status === 429 ? `${words} It is tried again by itself.` : words;
  }

  function sendSheet(outlivesPage = false) {
    const sent = JSON.stringify(answers());
    if (!bases.includes(sent)) bases.push(sent);
    keepHere();
    return send(sheet.dataset.save, { answers: answers() }, outlivesPage).catch(() => null);
  }

  // One at a time, so that an older sheet never arrives after a newer one.
  async function save() {
    if (saving || handedIn) return;
    saving = true;
    for (let waitMs = 500; savedVersion < version && !handedIn; waitMs = Math.min(SLOWEST_MS, waitMs * 2)) {
      const sent = { version, sheet: JSON.stringify(answers()) };
      const answer = await sendSheet();
      if (answer && answer.ok) {
        savedVersion = sent.version;
        bases = [sent.sheet];
        waitMs = 250;
        trouble("");
        put(el("saved"), `Saved at ${new Date().toLocaleTimeString()}.`);
        if (savedVersion === version) forgetHere();
        setLeft((await answer.json()).leftMs);
      } else if (answer && answer.status === 409) {
        break; // the bell has rung, or it was handed in elsewhere: the heartbeat sees which
      } else {
        put(el("saved"), "Kept in this browser, not yet on the site.");
        trouble(answer ? await refusal(answer) : "The site does not answer. What you write is kept in this browser and saved when it is back.");
        await pause(waitMs);
      }
    }
    saving = false;
  }

  let soon;
  function changed() {
    version += 1;
    keepHere();
    clearTimeout(soon);
    soon = setTimeout(save, SAVE_AFTER_MS);
  }
  sheet.addEventListener("input", changed);
  // The last that a phone tells a page before it takes it away.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden && savedVersion < version && !handedIn) sendSheet(true);
  });

  // -- handing in -----------------------------------------------------------------------------------------------------

  async function handIn(mode) {
    if (handedIn) return;
    handedIn = true;
    for (const button of sheet.querySelectorAll("button")) button.disabled = true;
    for (let waitMs = 1000; ; waitMs = Math.min(SLOWEST_MS, waitMs * 1.5)) {
      const asked = performance.now();
      // A tab where nothing was written since the last save may be an old one: what the site has is newer.
      const body = savedVersion < version ? { answers: answers() } : {};
      const answer = await send(`${sheet.action}?mode=${mode}`, body).catch(() => null);
      if (answer && answer.ok) return accepted(answer.status, await answer.json(), performance.now() - asked);
      if (answer && answer.status === 409) return location.reload();
      trouble(answer ? await refusal(answer) : "The site does not answer. Your answers are kept; they are handed in as soon as it is back.");
      if (answer && answer.status < 500 && answer.status !== 403) return reopen();
      await pause(waitMs);
    }
  }

  function reopen() {
    handedIn = false;
    for (const button of sheet.querySelectorAll("button")) button.disabled = false;
  }

  function accepted(status, body, tookMs) {
    forgetHere();
    trouble(body.late ?? "");
    sheet.hidden = true;
    showState({ status: body.score === undefined ? "grading" : "graded", says: "Handed in.", ...body });
    el("answered").hidden = false;
    put(el("answered"), `The site answered ${status} after ${Math.round(tookMs)} ms.`);
    followGrading();
    el("outcome-title").focus();
  }

  sheet.addEventListener("submit", (event) => {
    event.preventDefault();
    handIn(event.submitter?.value ?? "after");
  });

  // -- the clock ------------------------------------------------------------------------------------------------------

  const clock = el("clock");
  const TOLD = [[60, "One minute left."], [300, "Five minutes left."], [600, "Ten minutes left."]];
  // At the bell all would press at once; spread over this, they still arrive well before it is too late.
  const SPREAD_MS = 1500;
  let bellAt = clock ? performance.now() + Number(clock.dataset.leftMs) : Infinity;
  let told = Infinity;

  // The site's word: a laptop that slept has a clock that stood still.
  function setLeft(leftMs) { if (clock && leftMs !== null) bellAt = performance.now() + leftMs; }

  function tick() {
    const leftS = Math.max(0, Math.ceil((bellAt - performance.now()) / 1000));
    const [hours, minutes, seconds] = [Math.floor(leftS / 3600), Math.floor(leftS / 60) % 60, leftS % 60];
    put(clock, `${hours ? `${hours}:` : ""}${String(minutes).padStart(2, "0")}:${String(seconds).padStart(2, "0")}`);
    clock.classList.toggle("soon", leftS <= 300);
    const mark = TOLD.find(([at]) => leftS <= at && leftS > 0);
    if (mark && mark[0] < told) { told = mark[0]; put(el("bell-soon"), mark[1]); }
    if (leftS > 0) return;
    clearInterval(ticking);
    put(el("bell-soon"), "The bell has rung. Your answers are being handed in.");
    put(clock, "the bell has rung");
    setTimeout(handIn, Math.random() * SPREAD_MS, "after");
  }
  const ticking = clock ? setInterval(tick, 250) : null;

  // Now and then: is the site there, how long is it to the bell, was it handed in elsewhere?
  Live.follow(outcome.dataset.status, async (answer) => {
    if (handedIn) return false;
    if (!answer.ok) return trouble(await refusal(answer));
    const body = await answer.json();
    if (body.status !== "open") return location.reload();
    if (savedVersion === version) trouble("");
    setLeft(body.leftMs);
  }, 5000);

  // What a reload or a crash left behind, and the site has not seen.
  if (!sheet.querySelector("fieldset")) return; // the bell had rung when the page was made
  const asServed = sheet.cloneNode(true);
  asServed.reset();
  bases = [JSON.stringify(answers(asServed))];
  const left = keptHere();
  if (left?.bases?.includes(bases[0])) {
    restore(left.answers);
    changed();
  } else {
    if (left && JSON.stringify(left.answers) !== bases[0]) put(el("saved"), "Newer answers were saved from elsewhere; you see those.");
    if (JSON.stringify(answers()) !== bases[0]) changed(); // written before this script was there
  }
  if (clock) tick();
})();
