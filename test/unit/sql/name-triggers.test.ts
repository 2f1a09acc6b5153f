import { describe, expect, test } from 'vitest'
import { claimAllNames, releaseAllNames } from '../../../src/sql/name-fill'
import { namesGuard } from '../../../src/sql/name-guard'
import { nameTriggersOf } from '../../../src/sql/name-triggers'
import { FREE, holderTable, namesTable, RESERVE } from '../../support/names-table'

const names = namesTable()
const users = holderTable('users', names, {
  names: [
    { column: 'handle', namespace: 'handle', former: { state: 'redirect', interval: '90 days' } },
    { column: 'nick', namespace: 'handle', former: RESERVE },
  ],
})

const STATEMENTS: Readonly<Record<string, readonly string[]>> = {
  'names-of-a-holder': nameTriggersOf(users).create,
  'names-written-directly': namesGuard(names).create,
  'names-of-rows-that-are-there': [claimAllNames(users), releaseAllNames(users)],
}

describe.each(Object.entries(STATEMENTS))('%s', (name, statements) => {
  test('is the SQL that was reviewed', async () => {
    await expect(`${statements.join(';\n\n')};\n`).toMatchFileSnapshot(`../../golden/${name}.sql`)
  })
  test('has no backslash, which TypeORM does not escape in migrations', () => {
    expect(statements.filter((one) => one.includes('\\'))).toEqual([])
  })
})

test('the schema of the table of names stands before its name, or is where names are found', () => {
  const bodies = (holder: string | undefined, of: string | undefined): string => {
    const { functions, path } = nameTriggersOf(holderTable('users', namesTable(undefined, of), { schema: holder }))
    const code = functions[0]?.body.replaceAll(/^--.*$/gm, '') ?? ''
    const said = [/(?:"\w+"\.)?"names"/.exec(code)?.[0], /ONLY (?:"\w+"\.)?"users"/.exec(code)?.[0]]
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
  expect(functions[0]?.body).toContain('DELETE FROM "names" AS n WHERE n."id" = ANY (freed)')
})
