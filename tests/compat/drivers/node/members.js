// The members of groups that are open, by name. kafkajs consumes by itself, in the background: what
// it hands over is kept until it is asked for.
'use strict'

const { PartitionAssigners } = require('kafkajs')

const AUTO_COMMIT_MS = 100

class Member {
  constructor(kafka, { group, settings }) {
    this.group = group
    this.settings = settings
    this.records = []
    this.assignment = []
    this.revoked = []
    this.rebalances = 0
    this.failure = null
    this.wake = () => {}
    this.consumer = kafka.consumer({
      groupId: group,
      partitionAssigners: [PartitionAssigners.roundRobin],
      sessionTimeout: settings.session_timeout_ms,
      heartbeatInterval: settings.heartbeat_interval_ms,
      metadataMaxAge: settings.metadata_max_age_ms,
      maxWaitTimeInMs: 100,
      allowAutoTopicCreation: false,
    })
    this.watch()
  }

  watch() {
    const { GROUP_JOIN, REBALANCING, CRASH } = this.consumer.events
    this.consumer.on(GROUP_JOIN, ({ payload }) => {
      this.rebalances += 1
      this.assignment = pairs(payload.memberAssignment)
    })
    this.consumer.on(REBALANCING, () => {
      this.revoked.push(...this.assignment)
      this.assignment = []
    })
    this.consumer.on(CRASH, ({ payload }) => {
      // A crash that it recovers from by itself is what the client does with an error to be retried.
      if (!payload.restart) this.failure = payload.error
    })
  }

  async start(topics) {
    const { reset, auto_commit } = this.settings
    await this.consumer.connect()
    await this.consumer.subscribe({ topics, fromBeginning: reset === 'earliest' })
    const run = this.consumer.run({
      autoCommit: auto_commit,
      autoCommitInterval: AUTO_COMMIT_MS,
      eachMessage: async received => {
        this.records.push(received)
        this.wake()
      },
    })
    // It is not waited for: the group may need another member to go on.
    run.catch(error => {
      this.failure = error
    })
  }

  async poll(count, timeoutMs) {
    const deadline = Date.now() + timeoutMs
    while (this.records.length < count && Date.now() < deadline && !this.failure) {
      await new Promise(resolve => {
        const timer = setTimeout(resolve, deadline - Date.now())
        this.wake = () => {
          clearTimeout(timer)
          resolve()
        }
      })
    }
    if (this.failure) throw this.failure
    return this.records.splice(0)
  }
}

function pairs(assignment) {
  return Object.entries(assignment).flatMap(([topic, partitions]) =>
    partitions.map(partition => [topic, partition])
  )
}

const text = data => (data === null || data === undefined ? null : data.toString('base64'))

function shown({ topic, partition, message }) {
  const headers = Object.entries(message.headers || {})
  return {
    topic,
    partition,
    offset: Number(message.offset),
    timestamp_ms: Number(message.timestamp),
    key: text(message.key),
    value: text(message.value),
    headers: headers.map(([name, value]) => [name, text(value)]),
  }
}

// What a driver does with members; mixed into it.
const memberOperations = {
  async member_join({ member, group, topics, settings }) {
    const joined = new Member(this.clientNamed(member), { group, settings })
    this.members[member] = joined
    await joined.start(topics)
  },

  async member_poll({ member, count, timeout_ms }) {
    const polled = this.members[member]
    const records = (await polled.poll(count, timeout_ms)).map(shown)
    const { assignment, rebalances, revoked } = polled
    return { records, assignment, rebalances, revoked }
  },

  async member_commit({ member, offsets, metadata, asynchronous }) {
    const places = offsets.map(([topic, partition, offset]) => ({
      topic,
      partition,
      offset: String(offset),
      metadata,
    }))
    const done = this.members[member].consumer.commitOffsets(places)
    if (!asynchronous) await done
  },

  async member_committed({ member, topic, partition }) {
    const groupId = this.members[member].group
    const [found] = await this.admin.fetchOffsets({ groupId, topics: [topic] })
    const at = found.partitions.find(entry => entry.partition === partition)
    if (Number(at.offset) < 0) return null
    return { offset: Number(at.offset), metadata: at.metadata || '' }
  },

  async member_seek({ member, topic, partition, offset }) {
    this.members[member].consumer.seek({ topic, partition, offset: String(offset) })
  },

  async member_pause({ member, topic, partition }) {
    this.members[member].consumer.pause([{ topic, partitions: [partition] }])
  },

  async member_resume({ member, topic, partition }) {
    this.members[member].consumer.resume([{ topic, partitions: [partition] }])
  },

  async member_close({ member }) {
    const closed = this.members[member]
    delete this.members[member]
    if (closed) await closed.consumer.disconnect()
  },
}

module.exports = { memberOperations, pairs }
