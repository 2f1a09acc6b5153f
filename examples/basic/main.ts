import { findOrCreate, uniqueTextMethods } from 'typeorm-unique-text'
import dataSource from './ormconfig'
import { Page } from './page'

async function main(): Promise<void> {
  await dataSource.initialize()

  // Active record: on the class itself.
  const first = await Page.findOrCreate({ url: 'HTTP://Example.com:80/a/../b', title: 'First' })
  console.log(first.entity.url, first.created)

  // A repository.
  const pages = dataSource.getRepository(Page).extend(uniqueTextMethods)
  const again = await pages.findOrCreate({ url: 'http://example.com/b', title: 'Ignored: the row exists' })
  console.log(again.entity.title, again.created)

  // A transaction of your own.
  await dataSource.transaction(async (manager) => {
    const { entity, created } = await findOrCreate(manager, Page, { url: 'http://example.com/c' })
    console.log(entity.url, created)
  })

  // Many at once: the results are in the order of the input, and a bad row fails alone.
  for (const result of await pages.findOrCreateMany([{ url: 'http://example.com/d' }, { url: 'not a URL' }])) {
    console.log('entity' in result ? result.entity.url : (result.error as Error).name)
  }
  await dataSource.destroy()
}

void main()
