import { describe, expect, test } from 'vitest'
import { useDatabase } from '../../support/database'
import { copyMutation, mutations, partitionMutation, softMutations } from '../../support/mutations'
import type { Level } from '../../support/sessions'
import { expectedPlay, page, softPage, useStage } from '../../support/stage'
import { allInterleavings } from './interleavings'
import { copies } from './interleavings/copies'
import { partitioned, partitionMoves } from './interleavings/partition-moves'
import { softDeletes } from './interleavings/soft-deletes'

const stage = useStage(useDatabase())

/** Which interleaving, at which level, stores a text twice when this part of the guard is taken out. */
const finders: Readonly<Record<string, readonly [name: string, level: Level]>> = {
  'no promotion after a delete': ['after the anchor went, the promoted text is held by number 0', 'READ COMMITTED'],
  'no promotion after a move': [
    'after the anchor moved to another chain, the promoted text is held by number 0',
    'READ COMMITTED',
  ],
  'no touch after an insert': [
    'stale chain: a number was freed and the text took it, in a chain that was flagged long before',
    'REPEATABLE READ',
  ],
  'no touch after an update': [
    'a stale insert: another row moved to the text, at a freed number, since the snapshot',
    'REPEATABLE READ',
  ],
  'a touch only looks': ['stale empty read: a fast insert needs no snapshot', 'READ COMMITTED'],
  'a touch skips an anchor that is flagged': [
    'stale chain: a number was freed and the text took it, in a chain that was flagged long before',
    'REPEATABLE READ',
  ],
  'no second read': [
    'second read: the text takes a freed number while another insert of it waits for the anchor',
    'READ COMMITTED',
  ],
  'no second read after a hit': [
    'second read: the text moves to another number while a hit at number 1 waits for the anchor',
    'READ COMMITTED',
  ],
  'no second read after a miss': [
    'second read: the text takes a freed number while another insert of it waits for the anchor',
    'READ COMMITTED',
  ],
  'no lock of the anchor': [
    'second read: the text takes a freed number while another insert of it waits for the anchor',
    'READ COMMITTED',
  ],
  'no lock for a hit at number 1 and more': [
    'a hit at number 1 holds the anchor, so that the text cannot come again at another number',
    'READ COMMITTED',
  ],
  'a promoted row gets no flag': ['after two anchors went, the third text is held by number 0', 'READ COMMITTED'],
  'a row that took number 0 again gets no flag': [
    'a statement that deletes the anchor and takes number 0 with another text, which is then deleted',
    'READ COMMITTED',
  ],
  'a touch that finds no anchor does not promote': [
    'a statement that inserts and deletes the unflagged anchor leaves the new row as anchor',
    'READ COMMITTED',
  ],
  'what took number 0 again is not compared': [
    'the forced statement: slow insert of a text, delete of the anchor, fast insert of that text',
    'SERIALIZABLE',
  ],
  'a client can clear the flag': ['a client that clears the flag while another deletes the anchor', 'READ COMMITTED'],
}

describe('with a part of the guard taken out, a forced interleaving stores a text twice', () => {
  for (const { name, guard } of mutations) {
    test(name, async () => {
      const [finder, level] = finders[name] ?? ['no interleaving', 'READ COMMITTED']
      const interleaving = allInterleavings.find((each) => each.name === finder)
      if (!interleaving) throw new Error(`The mutation "${name}" is found by "${finder}", which does not exist.`)
      const { violations } = await stage.play(interleaving, level, { name, guard: guard(page) })
      expect(violations).toContainEqual(expect.stringContaining('text twice'))
    })
  }
})

const softFinders: Readonly<Record<string, string>> = {
  'no promotion after a soft delete': 'after the anchor was softly deleted, the promoted text is held by number 0',
  'a restored row keeps its number':
    'a restored row that was at number 2 is numbered anew, where its text has a holder',
  'no touch after a restore': 'a row that is restored at the number that it had touches the anchor too',
  'softly deleted rows count as members of their chain': 'a softly deleted row at number 0 is no anchor',
}

describe('of a table whose softly deleted rows free their texts', () => {
  for (const { name, guard } of softMutations) {
    test(name, async () => {
      const interleaving = softDeletes.find((each) => each.name === softFinders[name])
      if (!interleaving) throw new Error(`The mutation "${name}" has no interleaving that finds it.`)
      const setting = { name, table: softPage, guard: guard(softPage) }
      const { violations } = await stage.play(interleaving, 'READ COMMITTED', setting)
      expect(violations).toContainEqual(expect.stringContaining('text twice'))
    })
  }
})

test('of a partitioned table, a row that takes the number of the partition that it leaves is refused', async () => {
  const [toAnother] = partitionMoves
  if (!toAnother) throw new Error('There is no interleaving.')
  const { name, guard } = partitionMutation
  const played = await stage.play(toAnother, 'READ COMMITTED', partitioned(name, guard(page)))
  expect(played).not.toEqual(expectedPlay(toAnother, 'READ COMMITTED'))
  expect(played.transcript).toContainEqual(expect.stringContaining('23505'))
})

test('where flagged rows are not placed, a copied chain whose anchor arrives last is refused', async () => {
  const [anchorLast] = copies
  if (!anchorLast) throw new Error('There is no interleaving.')
  const { name, guard } = copyMutation
  const played = await stage.play(anchorLast, 'READ COMMITTED', { name, guard: guard(page) })
  expect(played.transcript).toContainEqual(expect.stringContaining('23505'))
})
