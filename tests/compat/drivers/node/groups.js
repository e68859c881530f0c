// Groups as an administrator sees and changes them; mixed into the driver.
'use strict'

const { AssignerProtocol } = require('kafkajs')
const { pairs } = require('./members')

const groupOperations = {
  async list_groups() {
    const { groups } = await this.admin.listGroups()
    return groups.map(({ groupId }) => ({ group: groupId, state: null }))
  },

  async describe_group({ group }) {
    const { groups } = await this.admin.describeGroups([group])
    const { state, protocol, members } = groups[0]
    return {
      state,
      assignor: protocol,
      members: members.map(({ clientId, memberAssignment }) => ({
        client_id: clientId,
        instance_id: null,
        assignment: assigned(memberAssignment),
      })),
    }
  },

  async list_group_offsets({ groups }) {
    const [groupId] = groups
    const found = await this.admin.fetchOffsets({ groupId })
    const triples = found.flatMap(({ topic, partitions }) =>
      partitions.map(({ partition, offset }) => [topic, partition, Number(offset)])
    )
    return { [groupId]: triples }
  },

  async alter_group_offsets({ group, offsets }) {
    for (const [topic, partition, offset] of offsets) {
      const partitions = [{ partition, offset: String(offset) }]
      await this.admin.setOffsets({ groupId: group, topic, partitions })
    }
  },

  async delete_group({ group }) {
    await this.admin.deleteGroups([group])
  },
}

function assigned(encoded) {
  if (!encoded.length) return []
  return pairs(AssignerProtocol.MemberAssignment.decode(encoded).assignment)
}

module.exports = { groupOperations }
