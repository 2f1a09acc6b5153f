import type { Migration, MigrationExecutor, QueryRunner } from 'typeorm'
import { DeclarationError } from '../errors'
import type { Declaration } from '../registry/registry'
import { quote } from '../sql/identifier'

/** A comment, a function's body or a literal, whose semicolons end no statement. */
const OPAQUE = /--[^\n]*|\$(\w*)\$[^]*?\$\1\$|'(?:[^']|'')*'/g

/** Statements of ours that name no object of a text. */
const OURS = new RegExp(
  ['DO \\$guard', '(?:CREATE|COMMENT ON) FUNCTION @', 'SELECT @refuse_', '(?:RELEASE )?SAVEPOINT unique_text', '$']
    .map((one) => `^\\s*${one.replace('@', '(?:"(?:[^"]|"")*"\\.)?"unique_text_')}`)
    .join('|'),
)

/** Finds the migration to mark as run. @throws DeclarationError unless it is the next one, and only adopts the text */
export async function migrationToFake(
  from: MigrationExecutor,
  declaration: Declaration,
  wanted: string,
): Promise<Migration> {
  // This makes the table of migrations if it is missing; the other calls only read it.
  await from.showMigrations()
  const pending = await from.getPendingMigrations()
  const names = pending.map(({ name }) => name)
  const faked = pending.find(({ name }) => name === wanted)
  if (!faked || names[0] !== wanted) {
    const first = faked ? `not the first that is pending, so run the others before it` : 'not pending'
    throw new DeclarationError(`Migration "${wanted}" is ${first}. Pending ones: ${names.join(', ') || 'none'}.`)
  }
  const { table, text, lookup = '' } = declaration
  const own = [table.hash, table.number, table.chained, table.index, table.check, lookup].map(quote)
  const required = text.map(({ column }) => `ALTER COLUMN ${quote(column.databaseName)} SET NOT NULL`)
  const isOfText = (sql: string): boolean => OURS.test(sql) || [...own, ...required].some((name) => sql.includes(name))
  const others: string[] = []
  const query = async (sql: string): Promise<void> => {
    const plain = sql.replaceAll(OPAQUE, (found, tag?: string) =>
      found.startsWith("'") ? found.replaceAll(';', ',') : tag === undefined ? '' : `$${tag}`,
    )
    others.push(...plain.split(';').filter((one) => !isOfText(one)))
    await Promise.resolve()
  }
  const isRead = async (): Promise<boolean> => {
    await faked.instance?.up({ query } as unknown as QueryRunner)
    return others.length === 0
  }
  if (await isRead().catch(() => false)) return faked
  throw new DeclarationError(
    `Migration "${wanted}" does other work than that of the unique text "${declaration.name}", which adopt would not ` +
      `do. Move it into another migration.`,
  )
}
