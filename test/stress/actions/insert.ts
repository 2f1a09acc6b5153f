import { quote } from '../../../src/sql/identifier'
import { copyIn } from '../copy-in'
import type { Random } from '../random'
import { type Action, type Writer, statement } from '../action'
import {
  anyKey,
  collidingKey,
  type Form,
  indexCondition,
  insertSql,
  isScoped,
  keyColumns,
  severalKeys,
  type Subject,
} from '../subject'

const NOTHING = ' ON CONFLICT DO NOTHING'
const UPDATE = (subject: Subject): string => ` ${onKey(subject)} DO UPDATE SET note = 'again'`

function onKey(subject: Subject): string {
  const { scope, hash, number } = subject.table
  return `ON CONFLICT (${[...scope, hash, number].map(quote).join(', ')})${indexCondition(subject)}`
}

const one =
  (form: Form, suffix: (subject: Subject) => string = () => '') =>
  (subject: Subject, random: Random): string =>
    insertSql(subject, [[anyKey(subject, random), form]]) + suffix(subject)

const several =
  (forms: readonly Form[], suffix: (subject: Subject) => string = () => '') =>
  (subject: Subject, random: Random): string =>
    insertSql(
      subject,
      severalKeys(subject, random, 6).map((key) => [key, random.pick(forms)] as const),
    ) + suffix(subject)

interface Met {
  readonly id: number
  readonly text: string
}

/**
 * An upsert without a hash. Number 0 is found before the index is asked: a text of equal hash that comes there in
 * between, and commits, is what DO UPDATE then meets at READ COMMITTED. The condition keeps it off.
 */
function upsert(name: string, where: string, onOther: (writer: Writer, met: Met) => void): Action {
  return {
    name,
    weight: 4,
    run: async (writer, subject) => {
      const key = anyKey(subject, writer.random)
      const insert = insertSql(subject, [[key, 'slow']]).replace(subject.relation, `${subject.relation} AS t`)
      const update = `DO UPDATE SET note = 'again'${where} RETURNING t.*`
      const { rows } = await writer.sql(`${insert} ${onKey(subject)} ${update}`)
      for (const met of rows as unknown as Met[]) if (met.text !== key.text) onOther(writer, met)
    },
  }
}

/** Raw SQL that adds rows. A fast insert sends hash and number 0 and fires no trigger; a slow one leaves both out. */
export const insertActions: readonly Action[] = [
  statement('INSERT, fast', 4, one('fast')),
  statement('INSERT, slow', 4, one('slow')),
  statement(
    'INSERT, fast, DO NOTHING',
    4,
    one('fast', () => NOTHING),
  ),
  statement(
    'INSERT, slow, DO NOTHING',
    4,
    one('slow', () => NOTHING),
  ),
  upsert('INSERT, slow, DO UPDATE', '', ({ journal }) => journal.add('upserts without WHERE that met another text')),
  upsert('INSERT, slow, DO UPDATE … WHERE', ' WHERE t.text = EXCLUDED.text', ({ journal }, met) =>
    journal.violate(`an upsert met row ${met.id}, which holds another text, "${met.text}"`),
  ),
  statement('INSERT, slow, DO UPDATE of the text', 2, (subject, random) => {
    const row = insertSql(subject, [[anyKey(subject, random), 'slow']])
    return `${row} ${onKey(subject)} DO UPDATE SET text = 'text 01'`
  }),
  statement('INSERT with a number of its own', 2, one('numbered')),
  statement('INSERT with a number and no hash', 2, one('numbered without hash')),
  statement(
    'INSERT with the flag set',
    1,
    one('flagged', () => NOTHING),
  ),
  statement('INSERT of several, fast', 2, several(['fast'])),
  statement(
    'INSERT of several, slow, DO NOTHING',
    2,
    several(['slow'], () => NOTHING),
  ),
  // The row of another text that one of them meets may be the row that another of them means.
  statement('INSERT of several, slow, DO UPDATE', 2, several(['slow'], UPDATE), { expected: ['21000'] }),
  statement('INSERT of several, fast and slow', 2, several(['fast', 'slow', 'numbered'])),
  statement('INSERT of one text twice, slow then fast', 1, (subject, random) => {
    const key = anyKey(subject, random)
    return insertSql(subject, [
      [key, 'slow'],
      [collidingKey(subject, key, random), 'slow'],
      [key, 'fast'],
    ])
  }),
  statement('INSERT … SELECT', 1, (subject, random) => {
    const { relation, textCount } = subject
    const neighbour = `'text ' || lpad(((right(text, 2)::int + 1) % ${textCount})::text, 2, '0')`
    return (
      `INSERT INTO ${relation} (${keyColumns(subject)}) SELECT ${isScoped(subject) ? '3 - tenant, text' : neighbour} ` +
      `FROM ${relation} ORDER BY id LIMIT ${1 + random.int(3)}${NOTHING}`
    )
  }),
  {
    name: 'COPY without hash',
    weight: 2,
    run: async ({ raw, random, journal, client }, subject) => {
      const lines = random
        .sample(subject.keys, 1 + random.int(2))
        .map(({ text, tenant }) => (isScoped(subject) ? `${tenant}\t${text}` : text))
      journal.event(client, `COPY ${lines.join(' / ')}`)
      await copyIn(raw, `COPY ${subject.relation} (${keyColumns(subject)}) FROM STDIN`, lines)
    },
  },
  {
    name: 'COPY with hash',
    weight: 2,
    run: async ({ raw, random, journal, client }, subject) => {
      const columns = [...subject.table.scope, 'text', subject.table.hash].map(quote).join(', ')
      const lines = random
        .sample(subject.keys, 1 + random.int(2))
        .map(({ text, tenant }) =>
          [...(isScoped(subject) ? [tenant] : []), text, subject.table.digest.js(text)].join('\t'),
        )
      journal.event(client, `COPY ${lines.join(' / ')}`)
      await copyIn(raw, `COPY ${subject.relation} (${columns}) FROM STDIN`, lines)
    },
  },
]
