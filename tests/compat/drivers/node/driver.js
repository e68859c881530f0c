// Driver for kafkajs. The protocol is told in drivers/python/loop.py: a JSON request a line on
// standard input, a JSON answer a line on standard output. kafkajs has no consumer without a group.
'use strict'

const readline = require('node:readline')
const lz4 = require('lz4-napi')
const zstd = require('@bokuweb/zstd-wasm')
const snappy = require('kafkajs-snappy')
const {
  CompressionCodecs,
  CompressionTypes,
  ConfigResourceTypes,
  Kafka,
  Partitioners,
  logLevel,
} = require('kafkajs')
const { version } = require('kafkajs/package.json')
const { groupOperations } = require('./groups')
const { memberOperations } = require('./members')
const { securedOperations } = require('./secured')
const { transactionOperations } = require('./transactions')

const TOPIC_ALREADY_EXISTS = 36
const ZSTD_LEVEL = 3
const RECORDS_IN_BATCH_MAX = 500

CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: encoder => lz4.compressFrame(encoder.buffer),
  decompress: buffer => lz4.decompressFrame(buffer),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from(zstd.compress(encoder.buffer, ZSTD_LEVEL)),
  decompress: async buffer => Buffer.from(zstd.decompress(buffer)),
})
const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

class BrokerError extends Error {
  constructor(code, message) {
    super(message)
    this.code = code
  }
}

// kafkajs wraps the broker's error in up to three layers.
function innermost(error) {
  const parts = error.errors || error.groups || error.partitions || []
  const [first] = parts.map(part => part.error || part)
  const inner = error.cause || error.originalError || first
  return inner ? innermost(inner) : error
}

function describe(error) {
  if (error.kind) return { code: null, kind: error.kind, message: error.message }
  const cause = innermost(error)
  if (Number.isInteger(cause.code) && cause.code > 0) {
    return { code: cause.code, kind: null, message: cause.message }
  }
  return { code: null, kind: kindOf(cause), message: String(cause) }
}

function kindOf(cause) {
  if (/must have no running instances/.test(cause.message)) return 'has_members'
  return /Timeout/.test(cause.name) ? 'timeout' : 'client'
}

const bytes = text => (text === null ? null : Buffer.from(text, 'base64'))

class Driver {
  constructor(servers) {
    this.servers = servers.split(',')
    this.kafka = this.clientNamed('compat')
    this.admin = null
    this.members = {}
    this.producers = {}
  }

  clientNamed(clientId) {
    return new Kafka({
      clientId,
      brokers: this.servers,
      logLevel: logLevel.NOTHING,
      requestTimeout: 5000,
      retry: { initialRetryTime: 50, retries: 8 },
    })
  }

  // With an admin client of its own for each request: it never forgets a topic it was asked about,
  // and fails for all others once that one is deleted.
  async carryOut({ operation, arguments: asked }) {
    if (operation === 'member_poll') return this.member_poll(asked)
    if (operation.startsWith('secured_')) return (await this[operation](asked)) ?? null
    this.admin = this.kafka.admin()
    await this.admin.connect()
    try {
      return (await this[operation](asked)) ?? null
    } finally {
      await this.admin.disconnect()
    }
  }

  async create_topic({ topic, partitions, replication_factor, configs }) {
    const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
    const wanted = {
      topic,
      numPartitions: partitions,
      replicationFactor: replication_factor,
      configEntries,
    }
    const created = await this.admin.createTopics({ topics: [wanted] })
    if (!created) throw new BrokerError(TOPIC_ALREADY_EXISTS, `${topic} exists`)
  }

  async delete_topic({ topic }) {
    await this.admin.deleteTopics({ topics: [topic] })
  }

  async list_topics() {
    return this.admin.listTopics()
  }

  async describe_topic({ topic }) {
    const { topics } = await this.admin.fetchTopicMetadata({ topics: [topic] })
    return topics[0].partitions.map(({ partitionId, leader, replicas, isr }) => ({
      partition: partitionId,
      leader,
      replicas,
      isr,
    }))
  }

  async describe_cluster() {
    const { brokers, controller, clusterId } = await this.admin.describeCluster()
    return {
      cluster_id: clusterId,
      controller_id: controller,
      brokers: brokers.map(({ nodeId, host, port }) => [nodeId, host, port]),
    }
  }

  async create_partitions({ topic, total }) {
    await this.admin.createPartitions({ topicPartitions: [{ topic, count: total }] })
  }

  async delete_records({ topic, partition, offset }) {
    // kafkajs does not load the topic's metadata by itself here.
    await this.admin.fetchTopicOffsets(topic)
    await this.admin.deleteTopicRecords({
      topic,
      partitions: [{ partition, offset: String(offset) }],
    })
    return null
  }

  async describe_configs({ kind, name }) {
    const type = kind === 'broker' ? ConfigResourceTypes.BROKER : ConfigResourceTypes.TOPIC
    const { resources } = await this.admin.describeConfigs({ resources: [{ type, name }] })
    const described = {}
    for (const { configName, configValue, isDefault } of resources[0].configEntries) {
      described[configName] = { value: configValue, default: isDefault }
    }
    return described
  }

  async alter_configs({ topic, configs }) {
    const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
    const resource = { type: ConfigResourceTypes.TOPIC, name: topic, configEntries }
    await this.admin.alterConfigs({ validateOnly: false, resources: [resource] })
  }

  async list_offsets({ topic, partition, at }) {
    if (typeof at === 'number') {
      const found = await this.admin.fetchTopicOffsetsByTimestamp(topic, at)
      return { offset: Number(found.find(entry => entry.partition === partition).offset) }
    }
    const found = (await this.admin.fetchTopicOffsets(topic)).find(
      entry => entry.partition === partition
    )
    return { offset: Number(at === 'earliest' ? found.low : found.high) }
  }

  async produce({ topic, records, acks, codec, idempotent }) {
    const producer = this.kafka.producer({
      idempotent,
      createPartitioner: Partitioners.DefaultPartitioner,
    })
    await producer.connect()
    try {
      return await this.sendRuns(producer, { topic, acks, compression: CODECS[codec] }, records)
    } finally {
      await producer.disconnect()
    }
  }

  // Whatever sends: a producer or one of its transactions.
  async sendRuns(sender, options, records) {
    const results = []
    for (const run of runs(records)) {
      const sent = { ...options, messages: run.map(message) }
      results.push(...(await outcome(sender, sent, run.length)))
    }
    return results
  }
}

Object.assign(
  Driver.prototype,
  memberOperations,
  groupOperations,
  transactionOperations,
  securedOperations
)

// kafkajs answers with one base offset a partition: records that name the same partition go in
// one batch, one whose key chooses goes alone.
function runs(records) {
  const made = []
  for (const record of records) {
    const last = made[made.length - 1]
    const agrees = last && record.partition !== null && last[0].partition === record.partition
    if (agrees && last.length < RECORDS_IN_BATCH_MAX) {
      last.push(record)
    } else {
      made.push([record])
    }
  }
  return made
}

function message({ partition, key, value, headers, timestamp_ms }) {
  const made = { key: bytes(key), value: bytes(value), headers: {} }
  for (const [name, headerValue] of headers) made.headers[name] = bytes(headerValue)
  if (partition !== null) made.partition = partition
  if (timestamp_ms !== null) made.timestamp = String(timestamp_ms)
  return made
}

async function outcome(producer, sent, count) {
  const indexes = [...Array(count).keys()]
  try {
    const [answer] = await producer.send(sent)
    if (!answer) return indexes.map(() => ({ partition: null, offset: -1 }))
    const { partition, baseOffset } = answer
    return indexes.map(index => ({ partition, offset: Number(baseOffset) + index }))
  } catch (error) {
    return indexes.map(() => ({ error: describe(error) }))
  }
}

async function main() {
  const answer = object => process.stdout.write(JSON.stringify(object) + '\n')
  await zstd.init()
  const driver = new Driver(process.argv[2])
  answer({ client: 'kafkajs', version })
  for await (const line of readline.createInterface({ input: process.stdin })) {
    try {
      answer({ result: await driver.carryOut(JSON.parse(line)) })
    } catch (error) {
      answer({ error: describe(error) })
    }
  }
}

main()
