// Hands in an attempt and follows it until its score is there.
const form = document.getElementById("submit");
const said = document.getElementById("said");

function show(body) {
  document.getElementById("status").textContent = body.status;
  document.getElementById("status").className = `state ${body.status}`;
  document.getElementById("score").textContent = body.score ?? "–";
}

async function follow() {
  const body = await (await fetch(form.dataset.status)).json();
  show(body);
  if (body.status === "grading") setTimeout(follow, 300);
}

form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const mode = event.submitter?.value ?? "after";
  const asked = performance.now();
  const answer = await fetch(`${form.dataset.submit}?mode=${mode}`, { method: "POST" });
  const body = await answer.json();
  const after = Math.round(performance.now() - asked);
  said.textContent = `${answer.status} after ${after} ms: ${JSON.stringify(body)}`;
  if (answer.ok) form.hidden = true;
  follow();
});
