import { expect, test } from 'vitest'
import { nameTriggersOf, notedHolder, removedNames } from '../../../src/names/sql/triggers'
import { parseNote, type TriggerNote } from '../../../src/sql/trigger-set'
import { sha256 } from '../../../src/text/digest'
import { holderTable, namesTable } from '../../support/names-table'

const FROM = { schema: undefined, table: 'users', primary: ['id'] }

test('a set that nobody declares any more is known by its note, digest included', () => {
  const holder = holderTable('users', namesTable(sha256))
  const note = parseNote(nameTriggersOf(holder).functions[0]?.body ?? '')
  expect(note && notedHolder(note, FROM)).toEqual(holder)
})

test('the names of a table are left alone by what goes under the same name', () => {
  const note: TriggerNote = { kind: 'numbers', name: 'holder', protocol: 1, triggers: [] }
  expect(removedNames(note, FROM)).toEqual({})
})
