import { expect, test } from 'vitest'
import {
  findByNameStatement,
  findHolderStatement,
  releaseExpiredStatement,
  renameStatement,
  swapNamesStatement,
} from '../../../src/names/sql/statements'
import type { HolderTable } from '../../../src/names/sql/fragments'
import { takenNamesStatement } from '../../../src/sql/names-table'
import { claimAllNames, releaseAllNames } from '../../../src/names/sql/claim-all'
import { namesGuard, nameTriggersOf } from '../../../src/names/sql/triggers'
import type { TriggerSet } from '../../../src/sql/trigger-set'
import { FREE, holderTable, namesTable, RESERVE } from '../../support/names-table'
import { describeLookups } from '../../support/sql-lint'

const names = namesTable()
const users = holderTable('users', names, {
  names: [
    { column: 'handle', namespace: 'handle', former: { state: 'redirect', interval: '90 days' } },
    { column: 'nick', namespace: 'handle', former: RESERVE },
  ],
})

const STATEMENTS: Readonly<Record<string, readonly string[]>> = {
  'names of a holder': nameTriggersOf(users).create,
  'names of a holder that Citus may keep local': nameTriggersOf({ ...users, citus: 'local' }).create,
  'names written directly': namesGuard(names).create,
  'names of rows that are there': [claimAllNames(users), releaseAllNames(users)],
}

test.each(Object.entries(STATEMENTS))(
  '%s: no backslash, which TypeORM does not escape in migrations',
  (_, statements) => {
    expect(statements.filter((one) => one.includes('\\'))).toEqual([])
  },
)

test('the schema of the table of names stands before its name, or is where names are found', () => {
  const bodies = (holder: string | undefined, of: string | undefined): string => {
    const { functions, path } = nameTriggersOf(holderTable('users', namesTable(undefined, of), { schema: holder }))
    const [take] = functions.map(({ body }) => ({ body: body.replaceAll(/^--.*$/gm, '') }))
    const said = [
      /(?:"\w+"\.)?"names"/.exec(take?.body ?? '')?.[0],
      /ONLY (?:"\w+"\.)?"users"/.exec(take?.body ?? '')?.[0],
    ]
    return [...said, path?.name ?? '-'].join(' ')
  }
  expect(bodies(undefined, undefined)).toBe('"names" ONLY "users" -')
  expect(bodies('a', 'a')).toBe('"names" ONLY "users" -')
  expect(bodies(undefined, 'b')).toBe('"b"."names" ONLY "users" -')
  expect(bodies('a', 'b')).toBe('"b"."names" ONLY "users" -')
  expect(bodies('a', undefined)).toBe('"names" ONLY "a"."users" names')
})

test('a name that is given up is deleted where it is free at once', () => {
  const { functions } = nameTriggersOf(
    holderTable('users', names, { names: [{ column: 'handle', namespace: 'handle', former: FREE }] }),
  )
  expect(functions[0]?.body).toContain('DELETE FROM "names" AS n WHERE n."id" OPERATOR(pg_catalog.=) ANY (freed)')
})

/** Every type of key that `requireKeyTypes` allows, and others. */
const KEYS = ['smallint', 'bigint', 'numeric', 'uuid', 'boolean', 'text', 'character', 'character varying', 'date']
  .concat('timestamp with time zone', 'timestamp without time zone', 'inet', 'cidr', 'macaddr', 'integer[]', 'citext')
  .map((type) => ({ name: type, type }))

const row = { holder: users, name: 'handle', row: { select: ['id'], spatial: new Map() } }
const ofClass = { ...row, only: { column: 'type', values: ['a', 'b'] } }
const changes = { version: 'version', updated: 'updated' }
const written = ({ functions, triggers }: TriggerSet): string[] => [
  ...functions.map(({ body }) => body),
  ...triggers.map(({ create }) => create),
]
const before = (one: HolderTable): HolderTable => ({
  ...one,
  holder: 'people',
  names: [
    { column: 'login', namespace: 'handle', former: FREE },
    { column: 'nick', namespace: 'other', former: FREE },
  ],
})

test.each<[string, readonly string[]]>([
  ['what the triggers of a holder do', nameTriggersOf(users).create],
  ['what they do for keys of any type', nameTriggersOf({ ...users, primary: KEYS.slice(0, -2) }).create],
  ['what they do where search_path alone knows the names', nameTriggersOf({ ...users, schema: 'a' }).create],
  ['what they do where Citus may keep the table local', nameTriggersOf({ ...users, citus: 'local' }).create],
  ['what the triggers of the table of names do', namesGuard(names).create],
  ['what a migration does with rows', [claimAllNames(users), releaseAllNames(users)]],
  ['what a migration does with names that move', [claimAllNames(users, before(users))]],
  [
    'what calls send',
    [
      findByNameStatement({ ...row, only: undefined }),
      renameStatement(ofClass, ['handle'], changes),
      swapNamesStatement(ofClass, changes),
      releaseExpiredStatement(names),
      takenNamesStatement(names),
      ...[false, true].map((former) =>
        findHolderStatement(names, [{ table: users, read: row.row.select, spatial: row.row.spatial }], {
          former,
          entity: true,
        }),
      ),
    ].map(({ sql }) => sql),
  ],
])('%s looks nothing up by search_path', async (_, statements) => {
  expect(await describeLookups(statements)).toEqual([])
})

test('what a migration holds of names has no line of more than 120 characters', () => {
  const statements = [...written(nameTriggersOf(users)), ...written(namesGuard(names)), claimAllNames(users)]
  const lines = statements.flatMap((one) => one.split('\n')).filter((line) => !line.startsWith('-- '))
  expect(lines.filter((line) => line.length > 120)).toEqual([])
})
