// kafkajs: a group of the classic protocol, and transactions.
'use strict'

const assert = require('node:assert')
const { setTimeout: sleep } = require('node:timers/promises')
const { Kafka, logLevel, Partitioners } = require('kafkajs')

const NAME = process.env.NAME
const KEYS = 60
const PARTITIONS = 6
const RECORDS = 1500

const kafka = new Kafka({ clientId: 'compat', brokers: process.env.BOOTSTRAP.split(','), logLevel: logLevel.WARN })
let failure

// What was read: the values of a key are 0, 1, 2, ..., so the next one expected is all that has to be known to notice any record that is
// missing, twice or out of order.
class Seen {
  next = new Array(KEYS).fill(0)
  count = 0

  take({ key, value }) {
    const k = Number(key.toString())
    if (Number(value.toString()) !== this.next[k]) {
      failure = new Error(`key ${k}: read ${value}, want ${this.next[k]}`)
      throw failure
    }
    this.next[k]++
    this.count++
  }
}

async function wait(what, condition) {
  const end = Date.now() + 240_000
  while (!(await condition())) {
    if (failure) throw failure
    if (Date.now() > end) throw new Error(`not within four minutes: ${what}`)
    await sleep(20)
  }
}

async function topics(...names) {
  const admin = kafka.admin()
  await admin.connect()
  await admin.createTopics({
    topics: names.map((topic) => ({
      topic, numPartitions: PARTITIONS, replicationFactor: 3, configEntries: [{ name: 'min.insync.replicas', value: '2' }],
    })),
  })
  await admin.disconnect()
}

async function committedToTheEnd(topic) {
  const admin = kafka.admin()
  await admin.connect()
  const ends = await admin.fetchTopicOffsets(topic)
  const [{ partitions }] = await admin.fetchOffsets({ groupId: NAME, topics: [topic] })
  await admin.disconnect()
  for (const { partition, high } of ends) {
    const got = partitions.find((p) => p.partition === partition).offset
    if (high !== '0') assert.strictEqual(got, high, `partition ${partition}: committed ${got}, its end is ${high}`)
  }
}

const group = { groupId: NAME, sessionTimeout: 10_000, heartbeatInterval: 500, retry: { retries: 10 } }

async function member(options, eachBatch) {
  const consumer = kafka.consumer(options)
  const m = { owned: [], leave: () => consumer.disconnect(), consumer }
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => { m.owned = Object.values(payload.memberAssignment).flat() })
  consumer.on(consumer.events.REBALANCING, () => { m.owned = [] })
  consumer.on(consumer.events.CRASH, ({ payload }) => { failure = payload.error })
  await consumer.connect()
  return m
}

async function playGroup() {
  await topics(NAME)
  const seen = new Seen()
  let sent = 0
  let written = false
  const write = async () => {
    const producer = kafka.producer({ idempotent: true, createPartitioner: Partitioners.DefaultPartitioner })
    await producer.connect()
    while (!written) {
      const messages = []
      for (let n = 0; n < 20; n++, sent++) messages.push({ key: `${sent % KEYS}`, value: `${Math.floor(sent / KEYS)}` })
      await producer.send({ topic: NAME, messages, acks: -1 })
      await sleep(5)
    }
    await producer.disconnect()
  }
  const writer = write().catch((e) => { failure = e })
  const join = async () => {
    const m = await member(group)
    await m.consumer.subscribe({ topics: [NAME], fromBeginning: true })
    await m.consumer.run({ eachBatch: async ({ batch }) => { batch.messages.forEach((r) => seen.take(r)) } })
    return m
  }
  const more = (n) => {
    const until = seen.count + n
    return wait(`${n} more records`, () => seen.count >= until)
  }
  const members = [await join(), await join()]
  await wait('two members with partitions', () => members.every((m) => m.owned.length > 0))
  members.push(await join())
  await wait('a third with partitions', () => members.every((m) => m.owned.length > 0))
  await more(1000)
  await members.shift().leave()
  await wait('all partitions with those who stay', () => members.reduce((n, m) => n + m.owned.length, 0) === PARTITIONS)
  await more(1000)
  written = true
  await writer
  await wait('all records read', () => seen.count === sent)
  for (const m of members) await m.leave()
  await committedToTheEnd(NAME)
  return `three members, one late, one leaving: ${sent} records, each once and in order of its key, offsets committed`
}

// Reads the topic until `enough` says so, in a group of its own.
async function readAll(topic, readUncommitted, take, enough) {
  const m = await member({ groupId: `${NAME}-reader-${readUncommitted}`, readUncommitted })
  await m.consumer.subscribe({ topics: [topic], fromBeginning: true })
  await m.consumer.run({ eachMessage: async ({ message }) => take(message) })
  await wait(`the end of ${topic}`, enough)
  await m.leave()
}

async function transactions() {
  const source = `${NAME}-in`
  const target = `${NAME}-out`
  await topics(source, target)
  const first = kafka.producer({ idempotent: true, createPartitioner: Partitioners.DefaultPartitioner })
  await first.connect()
  const messages = Array.from({ length: RECORDS }, (_, i) => ({ key: `${i % KEYS}`, value: `${Math.floor(i / KEYS)}` }))
  for (let i = 0; i < RECORDS; i += 100) await first.send({ topic: source, messages: messages.slice(i, i + 100), acks: -1 })
  await first.disconnect()

  let moved = 0
  let aborted = 0
  const worker = async (number) => {
    const producer = kafka.producer({
      transactionalId: `${NAME}-${number}`, idempotent: true, maxInFlightRequests: 1, createPartitioner: Partitioners.DefaultPartitioner,
    })
    await producer.connect()
    const m = await member({ ...group, maxBytesPerPartition: 2000 })
    m.commits = 0
    let n = 0
    // One transaction of the batch; that every third one is aborted first makes no difference to who reads committed records.
    const move = async (batch, commit) => {
      const t = await producer.transaction()
      await t.send({ topic: target, messages: batch.messages.map(({ key, value }) => ({ key, value })), acks: -1 })
      const offset = (BigInt(batch.lastOffset()) + 1n).toString()
      await t.sendOffsets({ consumerGroupId: NAME, topics: [{ topic: source, partitions: [{ partition: batch.partition, offset }] }] })
      await (commit ? t.commit() : t.abort())
    }
    await m.consumer.subscribe({ topics: [source], fromBeginning: true })
    await m.consumer.run({
      autoCommit: false,
      eachBatch: async ({ batch }) => {
        if (++n % 3 === 0) {
          await move(batch, false)
          aborted += batch.messages.length
        }
        await move(batch, true)
        m.commits++
        moved += batch.messages.length
      },
    })
    return { ...m, commits: () => m.commits, leave: async () => { await m.leave(); await producer.disconnect() } }
  }
  const one = await worker(1)
  const two = await worker(2)
  await wait('both at work', () => one.commits() > 1 && two.commits() > 1)
  await one.leave()
  await wait('all moved', () => moved >= RECORDS)
  await two.leave()
  await committedToTheEnd(source)
  const seen = new Seen()
  await readAll(target, false, (r) => seen.take(r), () => seen.count >= RECORDS)
  let all = 0
  await readAll(target, true, () => { all++ }, () => all >= RECORDS + aborted)
  assert(aborted > 0 && seen.count === RECORDS && all === RECORDS + aborted, `${seen.count} committed, ${all} in all, ${aborted} aborted`)
  return `two workers, one leaving: ${RECORDS} records, each once and in order of its key, aborted ones not seen`
}

const scenarios = { group: playGroup, transactions }
scenarios[process.argv[2]]().then(
  (said) => { if (failure) throw failure; console.log(said); process.exit(0) },
).catch((e) => { console.error(e); process.exit(1) })
