// Secured listeners: what a connection holds and what an error's kind is, is told in
// drivers/python/secured.py.
'use strict'

const fs = require('node:fs')
const { Kafka, Partitioners, logLevel } = require('kafkajs')

const TIMEOUT_MS = 30000

function tlsOf({ protocol, ca, certificate }) {
  if (!protocol.endsWith('SSL')) return undefined
  const own = certificate ? fs.readFileSync(certificate) : undefined
  return { ca: [fs.readFileSync(ca)], cert: own, key: own }
}

function saslOf({ mechanism, username, password, token }) {
  if (!mechanism) return undefined
  if (token) return { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: token }) }
  return { mechanism: mechanism.toLowerCase(), username, password }
}

const kafkaOf = connection =>
  new Kafka({
    clientId: 'secured',
    brokers: connection.servers.split(','),
    ssl: tlsOf(connection),
    sasl: saslOf(connection),
    logLevel: logLevel.NOTHING,
    requestTimeout: 5000,
    // Ours would be repeated five times otherwise before the error is shown.
    retry: { retries: 0 },
  })

// Its own name, and what the broker or Node.js called it.
class Refusal extends Error {
  constructor(error) {
    super(error.message)
    const inner = error.cause || error.originalError || error
    const code = String(inner.type || inner.code || '')
    // Which alert it is depends on the broker's library of TLS.
    this.kind = `${inner.name} ${code.replace(/^ERR_SSL_.*_ALERT_.*/, 'alert')}`.trim()
  }
}

async function refusing(action) {
  try {
    return await action()
  } catch (error) {
    throw new Refusal(error)
  }
}

async function firstValue(consumer, topic) {
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error('nothing was read')), TIMEOUT_MS)
    const settle = (action, result) => {
      clearTimeout(timer)
      action(result)
    }
    consumer.on(consumer.events.CRASH, ({ payload }) => settle(reject, payload.error))
    consumer
      .run({ eachMessage: async ({ message }) => settle(resolve, message.value.toString()) })
      .catch(error => settle(reject, error))
  })
}

const securedOperations = {
  async secured_produce({ connection, topic, value }) {
    const createPartitioner = Partitioners.DefaultPartitioner
    const producer = kafkaOf(connection).producer({ createPartitioner })
    try {
      await refusing(async () => {
        await producer.connect()
        await producer.send({ topic, messages: [{ value }] })
      })
    } finally {
      await producer.disconnect()
    }
  },

  async secured_consume({ connection, topic, group }) {
    const consumer = kafkaOf(connection).consumer({ groupId: group, maxWaitTimeInMs: 100 })
    try {
      return await refusing(() => firstValue(consumer, topic))
    } finally {
      await consumer.disconnect()
    }
  },
}

module.exports = { securedOperations }
