// A client of kafkajs, driven by lines of JSON; what they say stands in ../__init__.py.
import { createInterface } from "node:readline";
import kafkajs from "kafkajs";

const CLOSED_WITHIN_MS = 15_000;

const settings = JSON.parse(process.argv[2]);
const { topic, group_id: groupId } = settings;

function say(event, more = {}) {
  process.stdout.write(`${JSON.stringify({ event, ...more })}\n`);
}

// It has no static members: to run as a dynamic one would show something else than what was asked for.
if (settings.instance_id) {
  say("error", { message: "kafkajs has no static members", is_fatal: true });
  process.exit(1);
}

const kafka = new kafkajs.Kafka({
  clientId: "kafkajs",
  brokers: settings.bootstrap.split(","),
  logCreator: () => ({ label, log }) => process.stderr.write(`${label} ${JSON.stringify(log)}\n`),
  logLevel: kafkajs.logLevel.WARN,
  retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 60 },
});

const producer = kafka.producer({ createPartitioner: kafkajs.Partitioners.DefaultPartitioner });
const admin = kafka.admin();
const consumer = groupId
  ? kafka.consumer({
      groupId,
      sessionTimeout: settings.session_ms,
      rebalanceTimeout: settings.session_ms,
      heartbeatInterval: settings.heartbeat_ms,
      // It heartbeats between two fetches only.
      maxWaitTimeInMs: settings.heartbeat_ms,
      allowAutoTopicCreation: true,
    })
  : null;
const opened = new Map();

function connected(client) {
  if (!opened.has(client)) {
    opened.set(client, client.connect());
  }
  return opened.get(client);
}

async function consume() {
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) =>
    say("assigned", {
      partitions: payload.memberAssignment[topic] ?? [],
      member_id: payload.memberId,
      generation_id: null, // it does not tell
    }),
  );
  consumer.on(consumer.events.REBALANCING, () => say("revoked", { partitions: [] }));
  consumer.on(consumer.events.CRASH, ({ payload }) =>
    say("error", { message: String(payload.error), is_fatal: !payload.restart }),
  );
  await connected(consumer);
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) =>
      say("record", { partition, offset: Number(message.offset), value: String(message.value) }),
  });
}

const actions = {
  async commit({ partition, offset }) {
    await consumer.commitOffsets([{ topic, partition, offset: String(offset) }]);
    return null;
  },
  async committed({ partition }) {
    await connected(admin);
    const [{ partitions }] = await admin.fetchOffsets({ groupId, topics: [topic] });
    const offset = Number(partitions.find((each) => each.partition === partition)?.offset ?? -1);
    return offset < 0 ? null : offset;
  },
  async produce({ partition, value }) {
    await connected(producer);
    const [answer] = await producer.send({ topic, messages: [{ partition, value }] });
    return Number(answer.baseOffset);
  },
};

async function answer(request) {
  try {
    say("done", { id: request.id, result: await actions[request.do](request) });
  } catch (error) {
    say("done", { id: request.id, result: null, error: `${error.type ?? error.name}: ${error.message}` });
  }
}

async function close() {
  setTimeout(() => process.exit(1), CLOSED_WITHIN_MS).unref();
  await Promise.all([...opened.keys()].map((client) => client.disconnect()));
  say("closed");
  process.exit(0);
}

if (consumer) {
  consume().catch((error) => say("error", { message: String(error), is_fatal: true }));
}
createInterface({ input: process.stdin })
  .on("line", (text) => answer(JSON.parse(text)))
  .on("close", close);
