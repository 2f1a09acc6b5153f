import { expect, test } from 'vitest'
import { useDatabase } from '../../support/database'
import { entity, text } from '../../support/entity'
import { generate } from '../../support/generated'

const db = useDatabase({ wrapped: true })

const Page = entity('Page', { url: text() })

test('the page in which one tries it has the SQL that is generated', async () => {
  const dataSource = await db.dataSource([Page], { synchronize: false, dropSchema: true })
  const { up } = await generate(dataSource)
  const statements = up.map((one) => `  String.raw\`${one}\`,\n`).join('')
  await expect(
    `/** What migration:generate writes for the class in try.md. */\nexport const page: string = [\n${statements}].join(';\\n')\n`,
  ).toMatchFileSnapshot('../../../site/page.ts')
})
