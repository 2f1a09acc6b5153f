/**
 * npx tsx scripts/library.ts   makes a module of each .sql file of src/library, so that a bundle contains the SQL
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'

const FOLDER = path.resolve(__dirname, '../src/library')

/** The module of a file with SQL. It has no backslash and no backtick, so that a migration can quote it as it is. */
export function moduleOf(part: string, sql: string): string {
  if (/[\\`]|\$\{/.test(sql)) throw new Error('The SQL contains a backslash, a backtick or a placeholder.')
  return `// Made by scripts/library.ts of ${part}.sql. Edit that file.\nexport const ${part.toUpperCase()}_SQL = \`${sql}\`\n`
}

if (require.main === module) {
  for (const file of readdirSync(FOLDER).filter((name) => name.endsWith('.sql'))) {
    const part = path.basename(file, '.sql')
    writeFileSync(path.join(FOLDER, `${part}.ts`), moduleOf(part, readFileSync(path.join(FOLDER, file), 'utf8')))
  }
}
