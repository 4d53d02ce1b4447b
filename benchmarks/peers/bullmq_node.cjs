// BullMQ on Node: `node bullmq_node.cjs send JOBS` prints jobs per second; `node bullmq_node.cjs work` runs three processes.
const cluster = require("node:cluster");
const { Queue, Worker } = require("bullmq");

const url = new URL(process.env.CELERY_BROKER_URL);
const connection = { host: url.hostname, port: Number(url.port), maxRetriesPerRequest: null };
const WARM_UP = 100;

async function send(jobs) {
  const queue = new Queue("bench", { connection });
  const one = () => queue.add("noop", { filler: "x".repeat(100) }, { removeOnComplete: true });
  for (let i = 0; i < WARM_UP; i++) await one();
  const began = performance.now();
  for (let i = WARM_UP; i < jobs; i++) await one();
  console.log(JSON.stringify({ per_s: ((jobs - WARM_UP) / (performance.now() - began)) * 1000 }));
  await queue.close();
}

if (process.argv[2] === "send") send(Number(process.argv[3]));
else if (cluster.isPrimary) for (let i = 0; i < 3; i++) cluster.fork();
else new Worker("bench", async () => {}, { connection, concurrency: 10 });
