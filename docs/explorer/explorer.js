// Sliders, pictures and the simulated trail; all numbers come from theory.js.
"use strict";

const ROWS = 1000, TRAIL = 400, STEPS_PER_FRAME = 4;
const POWERS = ["step", "batch", "a1", "a2", "c1", "c2"]; // sliders of logarithms to the base 10
const sliders = Object.fromEntries(
  [...document.querySelectorAll("input")].map((input) => [input.id, input]),
);
const panels = [...document.querySelectorAll("figure")];
const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
let laws = {}, trails = {};

function value(name) {
  const given = Number(sliders[name].value);
  return POWERS.includes(name) ? 10 ** given : given;
}

function settings() {
  return {
    A: theory.rotated(value("a1"), value("a2"), value("aAngle")),
    C: theory.rotated(value("c1"), value("c2"), value("cAngle")),
    N: ROWS,
    S: value("batch"),
    damping: 1 - value("momentum"),
    step: value("step"),
  };
}

function shown(number) {
  if (number === null || !Number.isFinite(number)) return "–";
  if (number !== 0 && Math.abs(number) < 5e-5) return "0.0000";
  return Math.abs(number) >= 100 ? number.toFixed(0) : number.toPrecision(3);
}

function update() {
  const now = settings();
  for (const [name, input] of Object.entries(sliders)) {
    const angle = name.endsWith("Angle");
    input.parentElement.querySelector("output").textContent = angle
      ? `${input.value}°`
      : shown(value(name));
  }
  for (const panel of panels) {
    const form = panel.dataset.form, law = theory.law(form, now);
    laws[form] = { ...law, noise: theory.root(theory.times(theory.times(law.H, now.C), law.H)), S: now.S };
    trails[form] = { place: [0, 0, 0, 0], points: [] };
    const word = panel.querySelector(".regime");
    word.textContent = law.regime;
    word.className = `regime ${law.regime === "the posterior" ? "good" : "bad"}`;
    panel.querySelector("canvas").setAttribute(
      "aria-label",
      `Posterior and stationary law with ${panel.querySelector("figcaption").textContent}: ${law.regime}`,
    );
    const rows = [
      ["KL(sampler ‖ posterior)", shown(law.kl_qp)],
      ["KL(posterior ‖ sampler)", shown(law.kl_pq)],
      ["relaxation, steps", law.covariance === null ? "–" : shown(law.relaxation)],
    ];
    panel.querySelector("dl").replaceChildren(
      ...rows.flatMap(([name, text]) => {
        const term = document.createElement("dt"), number = document.createElement("dd");
        term.textContent = name;
        number.textContent = text;
        return [term, number];
      }),
    );
  }
  history.replaceState(null, "", `#${new URLSearchParams(
    Object.entries(sliders).map(([name, input]) => [name, input.value]),
  )}`);
  frame();
}

function normal() {
  return Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
}

// Some steps of the recursion; a trail that diverges begins again.
function walk(form) {
  const { F, noise, S } = laws[form], trail = trails[form];
  for (let k = 0; k < STEPS_PER_FRAME; k += 1) {
    const draw = [normal(), normal()].map((number) => number / Math.sqrt(S));
    const shock = noise.map((row) => row[0] * draw[0] + row[1] * draw[1]);
    const moved = F.map((row) => row.reduce((sum, entry, j) => sum + entry * trail.place[j], 0));
    trail.place = moved.map((entry, i) => entry + shock[i % 2]);
    if (Math.hypot(trail.place[0], trail.place[1]) > 1e6) trail.place = [0, 0, 0, 0];
    trail.points.push([trail.place[0], trail.place[1]]);
  }
  trail.points.splice(0, Math.max(0, trail.points.length - TRAIL));
}

function ellipse(context, covariance, scale) {
  const { first, second, angle } = theory.axes(covariance);
  context.beginPath();
  context.ellipse(0, 0, 2 * scale * Math.sqrt(first), 2 * scale * Math.sqrt(Math.max(second, 0)), -angle, 0, 2 * Math.PI);
}

function draw(panel) {
  const canvas = panel.querySelector("canvas"), context = canvas.getContext("2d");
  const law = laws[panel.dataset.form], style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const widest = Math.sqrt(theory.axes(law.posterior).first);
  const scale = canvas.width / (6.5 * widest);
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.setTransform(1, 0, 0, 1, canvas.width / 2, canvas.height / 2);
  if (law.covariance !== null) {
    ellipse(context, law.covariance, scale);
    context.fillStyle = colour("--said");
    context.globalAlpha = 0.25;
    context.fill();
    context.globalAlpha = 1;
    context.lineWidth = 3;
    context.strokeStyle = colour("--said");
    context.stroke();
  }
  context.fillStyle = colour("--said");
  for (const [x, y] of trails[panel.dataset.form].points) {
    context.fillRect(x * scale - 1.5, -y * scale - 1.5, 3, 3);
  }
  ellipse(context, law.posterior, scale);
  context.setLineDash([10, 7]);
  context.lineWidth = 3;
  context.strokeStyle = colour("--text");
  context.stroke();
  context.setLineDash([]);
}

function frame() {
  for (const panel of panels) {
    const form = panel.dataset.form;
    if (still) while (trails[form].points.length < TRAIL) walk(form);
    draw(panel);
  }
}

function animate() {
  for (const panel of panels) {
    walk(panel.dataset.form);
    draw(panel);
  }
  requestAnimationFrame(animate);
}

function take(query) {
  for (const [name, given] of new URLSearchParams(query)) {
    if (name in sliders && Number.isFinite(Number(given))) sliders[name].value = given;
  }
  update();
}

for (const input of Object.values(sliders)) input.addEventListener("input", update);
for (const button of document.querySelectorAll("button")) {
  button.addEventListener("click", () => take(button.dataset.set));
}
take(location.hash.slice(1));
if (!still) requestAnimationFrame(animate);
