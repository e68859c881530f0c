// The producers with a transactional id that are open, by name.
'use strict'

const { Partitioners } = require('kafkajs')

const ACKS_ALL = -1

// What a driver does with transactions; mixed into it.
const transactionOperations = {
  // kafkajs asks for its epoch when the first transaction begins.
  async transaction_open({ producer, transactional_id, timeout_ms }) {
    const made = this.clientNamed(producer).producer({
      transactionalId: transactional_id,
      transactionTimeout: timeout_ms,
      maxInFlightRequests: 1,
      createPartitioner: Partitioners.DefaultPartitioner,
    })
    await made.connect()
    this.producers[producer] = { producer: made, transaction: null }
  },

  async transaction_begin({ producer }) {
    const opened = this.producers[producer]
    opened.transaction = await opened.producer.transaction()
  },

  async transaction_send({ producer, topic, records }) {
    return this.sendRuns(this.producers[producer].transaction, { topic, acks: ACKS_ALL }, records)
  },

  // The group's name is all that it takes: it cannot say which member it speaks for.
  async transaction_offsets({ producer, group, offsets }) {
    const topics = offsets.map(([topic, partition, offset]) => ({
      topic,
      partitions: [{ partition, offset: String(offset) }],
    }))
    await this.producers[producer].transaction.sendOffsets({ consumerGroupId: group, topics })
  },

  async transaction_end({ producer, committed }) {
    const { transaction } = this.producers[producer]
    await (committed ? transaction.commit() : transaction.abort())
  },

  async transaction_close({ producer }) {
    const { producer: closed } = this.producers[producer]
    delete this.producers[producer]
    await closed.disconnect()
  },
}

module.exports = { transactionOperations }
